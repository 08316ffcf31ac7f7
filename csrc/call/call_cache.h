// The cache of one callable: its parameters, its options, and the entries of its calls by their static part.
#pragma once

#include <string>

#include "call/bound_call.h"
#include "call/entry_table.h"
#include "tree/dynamic_rule.h"

namespace partax {

// Whether its programs are stored: as the switch says, or as the option does.
enum class Stored : std::uint8_t { kAsTold, kNever, kAlways };

// What all wrappers of equal callables with equal options share.
struct CallCache {
  CallCache(Parameters named, Ref of, std::size_t max_size, Callables how, DynamicRule traced, Ref changing,
            Stored kept)
      : parameters(std::move(named)),
        options(std::move(of)),
        table(max_size, [](const EntryPtr& entry, bool) { return survives_owner(*entry); }),
        callables(how),
        rule(std::move(traced)),
        graph(std::move(changing)),
        stored(kept) {}

  Parameters parameters;
  Ref options;
  EntryTable table;
  Callables callables;
  DynamicRule rule;
  Ref graph;  // the option of that name; null where the function is to change no argument
  Stored stored;
  std::weak_ptr<Entry> root;  // where wrappers find this cache
  std::size_t hits = 0;
  std::size_t misses = 0;
  std::size_t loads = 0;
  Ref history;             // the records of its traces, which outlive its keys; empty before the first one
  std::string difference;  // what made its callable another one than the latest of the same code; empty: there was none
};

}  // namespace partax
