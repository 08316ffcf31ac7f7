// Which nodes of a result are nodes of an argument, to be returned unchanged.

#include <algorithm>
#include <list>
#include <map>

#include "dispatch/output.h"

namespace partax {
namespace {

// Whether instances of a node's type never change, and have only their fields as state.
bool is_frozen(const Node& node) {
  switch (node.kind) {
    case Kind::kDynamicLeaf:
    case Kind::kStaticLeaf:
    case Kind::kStaticRun:
    case Kind::kNone:
    case Kind::kTuple:
    case Kind::kStatic:
      return true;
    case Kind::kNamedTuple:
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kDeclared:
      return !node.has_wrapper_fields && node.info->is_frozen;
    default:
      return false;
  }
}

// How many dynamic leaves are before each node, and in all.
std::vector<std::uint32_t> leaves_before(const TreeSpec& spec) {
  std::vector<std::uint32_t> counts{0};
  for (const Node& node : spec.nodes) counts.push_back(counts.back() + (node.kind == Kind::kDynamicLeaf ? 1 : 0));
  return counts;
}

// Whether a part of the result, with leaves from `leaf` on, is one of the arguments, with leaves from `input` on, in
// which nothing can change.
bool is_same(const TraceOutput& output, const SpecPart& part, std::size_t leaf, const TreeSpec& arguments,
             const SpecPart& argument, std::uint32_t input) {
  const std::size_t num_nodes = part.end_node - part.first_node, num_statics = part.end_static - part.first_static;
  if (argument.end_node - argument.first_node != num_nodes ||
      argument.end_static - argument.first_static != num_statics)
    return false;
  for (std::size_t i = 0; i < num_nodes; ++i) {
    const Node& node = output.spec.nodes[part.first_node + i];
    if (!is_frozen(node) || !is_same_node(node, arguments.nodes[argument.first_node + i])) return false;
    if (node.kind == Kind::kDynamicLeaf && output.source[leaf++] != ~static_cast<std::int32_t>(input++)) return false;
  }
  for (std::size_t i = 0; i < num_statics; ++i) {
    PyObject* const object = output.spec.statics[part.first_static + i].identity();
    if (object == nullptr || object == hooks.missing.get() || holds_mutable(object)) return false;
    if (object != arguments.statics[argument.first_static + i].identity()) return false;
  }
  return true;
}

}  // namespace

void TraceOutput::find_passthroughs(const TreeSpec& arguments) {
  constexpr std::size_t kNone = ~std::size_t{0};
  const std::vector<std::uint32_t> inputs = leaves_before(arguments), leaves = leaves_before(spec);
  // By type and first leaf, in order. Each is used once: of equal nodes without arrays, all come back in their order.
  std::map<std::pair<const TypeInfo*, std::size_t>, std::list<std::size_t>> candidates;
  for (std::size_t i = 0; i < arguments.nodes.size(); ++i) {
    const Node& node = arguments.nodes[i];
    const bool is_only_one = node.kind == Kind::kTuple && node.arity == 0;
    if (node.info == nullptr || node.kind == Kind::kStatic || is_only_one) continue;
    candidates[{node.info, inputs[i + node.extent] > inputs[i] ? inputs[i] : kNone}].push_back(i);
  }
  for (std::size_t at = 0; at < spec.nodes.size();) {
    const Node& node = spec.nodes[at];
    const std::uint32_t leaf = leaves[at], num_leaves = leaves[at + node.extent] - leaf;
    auto& group = candidates[{node.info, num_leaves > 0 ? ~static_cast<std::size_t>(source[leaf]) : kNone}];
    const auto argument = std::find_if(group.begin(), group.end(), [&](std::size_t i) {
      return is_same(*this, spec.part(at), leaf, arguments, arguments.part(i), inputs[i]);
    });
    if (argument == group.end()) {
      ++at;
      continue;
    }
    passthroughs.push_back({static_cast<std::uint32_t>(*argument), inputs[*argument], num_leaves});
    group.erase(argument);
    spec.mark_passthrough(at);
    at += node.extent;
  }
}

}  // namespace partax
