#include "call/find_entry.h"

#include <algorithm>

#include "cache/flatten_call.h"
#include "call/build_target.h"
#include "tree/match.h"
#include "tree/spec_data.h"

namespace partax {
namespace {

// The static values of a call for which its key has equal ones.
void add_own_statics(const TreeSpec& key, const TreeSpec& spec, LeafBuffer& leaves) {
  for (std::size_t i = 0; i < key.statics.size(); ++i) {
    PyObject* value = spec.statics[i].identity();
    if (value != nullptr && !key.statics[i].is_object(value)) leaves.add_own_static(i, value);
  }
}

// The entry of a call that differs from the last one. Fills `leaves`.
EntryPtr look_up(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  TreeSpec spec;
  const FlattenOptions options = flatten_options(cache, frame.call, frame.abstract);
  flatten_call(spec, leaves, options, frame.call.values(), frame.call.size(), [&] { return names_of(frame); });
  EntryPtr entry;
  try {
    entry = cache.table.find_or_insert(spec, frame.call.shape());
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names_of(frame));
  }
  add_own_statics(entry->key, spec, leaves);
  if (entry->value) return entry;
  frame.entry = entry.get();
  try {
    if (const auto [index, reading] = cache.table.difference(spec, frame.call.shape()); !reading.empty()) {
      entry->difference = static_path(spec, names_of(frame), index) + ": a callable made anew (reads " + reading +
                          ", which cannot be proven unchanged)";
    }
    is_new = build_target(frame, *entry, leaves);
  } catch (...) {
    cache.table.erase_untraced(*entry);
    throw;
  }
  return entry;
}

}  // namespace

EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  CallCache& cache = frame.cache;
  const auto matches = [&](const Entry& entry) {
    return entry.value && entry.epoch == TypeTable::instance().epoch() && entry.shape == frame.call.shape() &&
           match_call(entry.key, frame.call.values(), frame.call.size(), leaves, frame.abstract, &cache.rule);
  };
  EntryPtr latest = cache.table.latest();
  if (!latest) return look_up(frame, leaves, is_new);
  if (matches(*latest)) return latest;
  // Calls that alternate or go round between static keys are known without hashing.
  EntryPtr entry = latest->successor.lock();
  if (entry && entry->in_table && matches(*entry)) {
    if (entry->in_table) cache.table.touch(*entry);
    return entry;
  }
  entry = look_up(frame, leaves, is_new);
  latest->successor = entry;
  return entry;
}

void keep_nodes(const CallFrame& frame, const Entry& entry, LeafBuffer& leaves) {
  if (leaves.num_nodes() == entry.key.num_coming_back) return;
  LeafBuffer again;
  const bool matches =
      match_call(entry.key, frame.call.values(), frame.call.size(), again, frame.abstract, &frame.cache.rule);
  if (!matches || !std::equal(leaves.arguments(), leaves.arguments() + leaves.size(), again.arguments())) return;
  leaves.take_nodes_of(again);
}

}  // namespace partax
