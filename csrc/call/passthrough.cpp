// Which nodes of a result are nodes of an argument, to be returned unchanged.

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "call/output.h"

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

bool is_dynamic_leaf(const Node& node) noexcept { return node.kind == Kind::kDynamicLeaf; }

// For each node, and one past the last, how many before it.
using Counts = std::vector<std::uint32_t>;

template <typename Count>
Counts counted(const TreeSpec& spec, Count&& count) {
  Counts counts{0};
  for (const Node& node : spec.nodes) counts.push_back(counts.back() + static_cast<std::uint32_t>(count(node)));
  return counts;
}

class Finder {
 public:
  Finder(TraceOutput& output, const TreeSpec& arguments)
      : output_(output),
        result_(output.spec),
        arguments_(arguments),
        leaves_before_(counted(arguments, is_dynamic_leaf)),
        leaves_before_in_result_(counted(result_, is_dynamic_leaf)),
        changeable_(counted(arguments, [](const Node& node) { return is_frozen(node) ? 0 : 1; })) {
    for (const StaticValue& value : arguments.statics) {
      const bool may_change = value.identity() == nullptr || holds_mutable(value.identity());
      changeable_statics_.push_back(changeable_statics_.back() + (may_change ? 1 : 0));
    }
    for (std::size_t i = 0; i < arguments.nodes.size(); ++i) {
      if (!may_come_back(i)) continue;
      const std::size_t first = leaves_before_[i], count = leaves_before_[i + arguments.nodes[i].extent] - first;
      candidates_[hash(arguments, i, count, first)].push_back(i);
    }
  }

  void find() {
    for (std::size_t i = 0; i < result_.nodes.size();) i += gives_back(i) ? result_.nodes[i].extent : 1;
  }

 private:
  // Whether nothing in this node of the arguments can change.
  bool may_come_back(std::size_t at) const {
    const Node& node = arguments_.nodes[at];
    if (node.info == nullptr || node.kind == Kind::kStatic) return false;
    if (node.kind == Kind::kTuple && node.arity == 0) return false;  // there is only one
    const SpecPart part = arguments_.part(at);
    return changeable_[at] == changeable_[part.end_node] &&
           changeable_statics_[part.first_static] == changeable_statics_[part.end_static];
  }

  // Of what two equal nodes have in common.
  static std::size_t hash(const TreeSpec& spec, std::size_t at, std::size_t leaf_count, std::size_t first_leaf) {
    const SpecPart part = spec.part(at);
    auto seed = reinterpret_cast<std::size_t>(spec.nodes[at].info);
    for (std::size_t i = part.first_static; i < part.end_static; ++i) {
      seed += reinterpret_cast<std::size_t>(spec.statics[i].identity());
    }
    for (const std::size_t property :
         {part.end_static - part.first_static, leaf_count, leaf_count > 0 ? first_leaf : 0}) {
      seed = (seed ^ property) * 0x9E3779B97F4A7C15ull;
    }
    return seed;
  }

  bool gives_back(std::size_t at) {
    const Node& node = result_.nodes[at];
    if (node.info == nullptr || !is_frozen(node)) return false;
    const std::size_t first = leaves_before_in_result_[at];
    const std::size_t count = leaves_before_in_result_[at + node.extent] - first;
    const auto input_of = [&](std::size_t leaf) { return ~static_cast<std::size_t>(output_.source[leaf]); };
    const std::size_t input = count > 0 ? input_of(first) : 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (output_.source[first + i] >= 0 || input_of(first + i) != input + i) return false;
    }
    const auto group = candidates_.find(hash(result_, at, count, input));
    if (group == candidates_.end()) return false;
    // In order, and each once: where nodes without arrays are equal, they come back where they came from.
    auto& candidates = group->second;
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](std::size_t argument) {
      return (count == 0 || leaves_before_[argument] == input) && is_same(at, argument);
    });
    if (same == candidates.end()) return false;
    output_.passthroughs.push_back(
        PassthroughNode{static_cast<std::uint32_t>(*same), leaves_before_[*same], static_cast<std::uint32_t>(count)});
    candidates.erase(same);
    result_.mark_passthrough(at);
    return true;
  }

  bool is_same(std::size_t at, std::size_t argument) const {
    const SpecPart result_part = result_.part(at), argument_part = arguments_.part(argument);
    const std::size_t end = result_part.end_node, argument_end = argument_part.end_node,
                      count = result_part.end_static - result_part.first_static;
    if (count != argument_part.end_static - argument_part.first_static) return false;
    for (std::size_t i = 0; i < count; ++i) {
      const StaticValue &argument_value = arguments_.statics[argument_part.first_static + i],
                        &value = result_.statics[result_part.first_static + i];
      PyObject* const object = argument_value.identity();
      if (object == nullptr || object == equinox().missing.get() || object != value.identity()) return false;
    }
    for (; at < end && argument < argument_end; ++at, ++argument) {
      const Node &node = result_.nodes[at], &argument_node = arguments_.nodes[argument];
      if (node.kind != argument_node.kind || node.arity != argument_node.arity || node.info != argument_node.info ||
          node.has_wrapper_fields) {
        return false;
      }
    }
    return at == end && argument == argument_end;
  }

  TraceOutput& output_;
  TreeSpec& result_;
  const TreeSpec& arguments_;
  const Counts leaves_before_, leaves_before_in_result_, changeable_;
  Counts changeable_statics_{0};
  std::unordered_map<std::size_t, std::deque<std::size_t>> candidates_;
};

}  // namespace

void TraceOutput::find_passthroughs(const TreeSpec& arguments) { Finder(*this, arguments).find(); }

}  // namespace partax
