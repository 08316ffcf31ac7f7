#include "tree/known_dictionaries.h"

#include "tree/tree_spec.h"

namespace partax {
namespace {

struct StaticRange {
  std::size_t begin = 0, end = 0;
};

// The static values that a node has in a dictionary beside the keys.
StaticRange statics_of(const Node& node) {
  switch (node.kind) {
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kDeclared:
      return {node.first_static, node.first_static + node.info->static_names.size()};
    case Kind::kEntries: {
      const EntryPlaces places(node);
      return node.in_slots ? StaticRange{} : StaticRange{places.statics, places.keys};
    }
    default:
      return {};
  }
}

bool has_dictionary(const Node& node) {
  switch (node.kind) {
    case Kind::kDict:
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kDeclared:
    case Kind::kEntries:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool KnownDictionaries::set_changing(std::size_t node, std::size_t index, PyObject* value) noexcept {
  for (std::size_t i = known_[node].first_changing; i < known_[node + 1].first_changing; ++i) {
    if (changing_[i].index != index) continue;
    changing_[i].value = value;
    return true;
  }
  return false;
}

void KnownDictionaries::make_room(const TreeSpec& spec) {
  std::vector<Known> known(spec.nodes.size() + 1);
  std::vector<Changing> changing;
  std::uint32_t num_children = 0;
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    const Node& node = spec.nodes[i];
    if (has_dictionary(node)) num_children += node.arity;
    const StaticRange range = statics_of(node);
    for (std::size_t index = range.begin; index < range.end; ++index) {
      if (spec.identity[index] == nullptr) changing.push_back({static_cast<std::uint32_t>(index), nullptr});
    }
    known[i + 1].first_child = num_children;
    known[i + 1].first_changing = static_cast<std::uint32_t>(changing.size());
  }
  children_.resize(std::size_t{num_children} + 1);  // so that there is an address where there are no children
  changing_ = std::move(changing);
  known_ = std::move(known);
}

}  // namespace partax
