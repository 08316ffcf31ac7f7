// What one trace returned: the static part of the result, and for each of its arrays where a call finds it.
#pragma once

#include <memory>
#include <optional>

#include "base/python_api.h"
#include "tree/tree_spec.h"

namespace partax {

// Where a static value is that came in with the call, or something inside of one.
struct StaticPlace {
  std::size_t index;               // in the key
  std::vector<std::size_t> inner;  // which item of which item (see each_inner); empty: the value itself

  // What is there in a call that has `value` for the static value; null if there is nothing.
  Ref in(Ref value) const;
};

// What the result has of a call's static values.
struct OwnStatic {
  StaticPlace place;
  StaticValue known;                // the key's value there, as far as the key holds it
  std::vector<StaticPlace> others;  // where the traced call had the same object; the body may have meant any of them
};

// A node of the result that is a node of an argument: no field of it can change, and all that is in it came in with it.
struct GivenBack {
  std::uint32_t node;        // in the key
  std::uint32_t first_leaf;  // of the call's leaves
  std::uint32_t leaf_count;
};

struct TraceOutput {
  TreeSpec spec;  // every array is a dynamic leaf
  // For each dynamic leaf: i >= 0 is result i of the executable; i < 0 is the call's own input leaf ~i, forwarded.
  std::vector<std::int32_t> source;
  // The nodes that come back as they came, in order; none of them is in another.
  std::vector<GivenBack> given_back;
  // What of the static values each call gives its own objects for.
  std::vector<OwnStatic> own;
  // For each static value of the spec: its index in `own`, kStored for one that stays as it is, or kTemplate for one
  // with placeholders of some of `own` in it. Empty if all stay.
  static constexpr std::int32_t kStored = -1;
  static constexpr std::int32_t kTemplate = -2;
  std::vector<std::int32_t> static_source;
  // Whether an object of the result was in several places of the call, and whether those had the key's own objects.
  bool has_twins = false;
  bool twins_are_keys = true;
  // Whether the result may hold objects of the traced call's: it serves only calls with the very same ones. And whether
  // it holds an object of its own that can be changed: it serves no other call.
  bool needs_same_objects = false;
  bool is_of_one_call = false;
  bool keys_hold_all = true;  // a call without other objects than its key's gives what the spec holds
  Ref shardings;              // explicit out_shardings, one for each result, or null
  std::shared_ptr<std::size_t> calls = std::make_shared<std::size_t>(0);

  // Finds in the spec, which holds the result of this trace, what came in with the call, and lets go of it. `key` is
  // the call's key, `arguments` what was flattened for it.
  void find_own_statics(const TreeSpec& arguments, const TreeSpec& key);
  // Where a call with these static values, equal to the traced call's, has two objects in place of one of that which is
  // in the result: their indices in the key. None in a call that this is the result of too.
  template <typename Value>
  std::optional<std::pair<std::size_t, std::size_t>> twins_apart(Value&& value_at) const {
    for (const OwnStatic& it : own) {
      if (it.others.empty()) continue;
      const Ref object = it.place.in(value_at(it.place.index));
      for (const StaticPlace& other : it.others) {
        if (other.in(value_at(other.index)).get() != object.get()) return std::pair{it.place.index, other.index};
      }
    }
    return {};
  }
  // Whether the result holds objects that did not come in with the call, and are no plain values.
  bool holds_user_objects() const noexcept;
  int traverse(visitproc visit, void* arg) const;
};

// Where jax's caches find an output. They may outlive the entry of the trace, which then empties this.
struct OutputSlot {
  std::shared_ptr<const TraceOutput> output;
};

}  // namespace partax
