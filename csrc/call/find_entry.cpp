#include "call/find_entry.h"

#include <algorithm>

#include "call/build_target.h"
#include "call/flatten_call.h"
#include "call/graph_objects.h"
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
    entry = cache.table.find_or_insert(spec, frame.call.shape(), frame.callable);
  } catch (const WalkError& error) {
    raise_at_static(error, spec, names_of(frame));
  }
  try {
    add_own_statics(entry->key, spec, leaves);
    if (frame.objects != nullptr && !entry->objects) note_objects(*entry);
    if (entry->value) return entry;
    frame.entry = entry.get();
    if (const std::string reading = cache.table.difference(spec, frame.call.shape(), frame.callable);
        !reading.empty()) {
      entry->difference = reading;
    } else if (const auto apart = cache.table.objects_apart(spec, frame.call.shape())) {
      const std::string place = static_path(spec, names_of(frame), apart->second);
      entry->difference = apart->first == apart->second
                              ? place + ": another object than that which the result of an earlier trace holds"
                              : place + ": another object than " + static_path(spec, names_of(frame), apart->first) +
                                    ", where an earlier trace had one object in both places and returned it";
    }
    is_new = build_target(frame, *entry, leaves);
  } catch (...) {
    cache.table.erase_untraced(*entry);
    throw;
  }
  return entry;
}

// The entry, if it is the last one or the one that followed that, which is known without hashing.
EntryPtr guess(CallFrame& frame, LeafBuffer& leaves) {
  EntryTable& table = frame.cache.table;
  const auto matches = [&](Entry& entry) {
    if (!entry.value || entry.epoch != TypeTable::instance().epoch() || !(entry.shape == frame.call.shape())) {
      return false;
    }
    const MadeAnew made_anew;
    if (!match_call(entry.key, frame.call.values(), frame.call.size(), leaves, frame.abstract, &frame.cache.rule)) {
      return false;
    }
    if (entry.objects_apart(leaves) || !is_for(entry, frame.callable, made_anew, leaves)) {
      leaves.clear();
      return false;
    }
    if (frame.objects == nullptr || frame.objects->has_read() || frame.objects->are_in(entry, leaves)) return true;
    leaves.clear();
    return false;
  };
  EntryPtr latest = table.latest();
  if (!latest || matches(*latest)) return latest;
  EntryPtr entry = latest->successor.lock();
  if (!entry || !entry->in_table || !matches(*entry)) return {};
  if (entry->in_table) table.touch(*entry);
  return entry;
}

}  // namespace

bool is_for(Entry& entry, PyObject* callable, const MadeAnew& made_anew, const LeafBuffer& leaves) {
  return entry.is_for(callable, made_anew.any(), [&](std::size_t i) {
    PyObject* const own = leaves.own_static(i);
    return own != nullptr ? Ref::borrow(own) : entry.key.statics[i].value();
  });
}

EntryPtr find_entry(CallFrame& frame, LeafBuffer& leaves, bool& is_new) {
  if (EntryPtr entry = guess(frame, leaves)) return entry;
  if (frame.objects != nullptr && !frame.objects->has_read()) {
    frame.objects->read();
    if (EntryPtr entry = guess(frame, leaves)) return entry;
  }
  const EntryPtr latest = frame.cache.table.latest();
  EntryPtr entry = look_up(frame, leaves, is_new);
  if (latest) latest->successor = entry;
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
