#include "tree/kept_values.h"

#include <algorithm>
#include <unordered_set>

#include "statics/static_form.h"

namespace partax {
namespace {

// Whether nothing can change a static value but to put another one in its place.
bool is_atom(PyObject* value) { return is_plain(value) || form_of(value) == Form::kNumpyScalar; }

// A value of a match as it is now, to be compared with itself: the key may have another object.
StaticValue as_it_is(const Ref& object) { return StaticValue::loose(object).sealed(nullptr); }

}  // namespace

KeptValues::KeptValues(const TreeSpec& spec, const std::vector<bool>& is_kept, const LeafBuffer* leaves) {
  parts_.resize(is_kept.size());
  for (std::size_t i = 0, at = 1; i < is_kept.size();) {
    const Node& node = spec.nodes[at];
    if (node.kind == Kind::kStaticRun) {  // which is compared as a whole
      i += node.arity;
      ++at;
      continue;
    }
    Part& part = parts_[i];
    static_cast<SpecPart&>(part) = spec.part(at);
    part.is_kept = is_kept[i++];
    part.first_leaf = is_kept_.size();
    for (; at < part.end_node; ++at) {
      if (spec.nodes[at].kind == Kind::kDynamicLeaf) is_kept_.push_back(part.is_kept);
    }
    part.num_leaves = is_kept_.size() - part.first_leaf;
  }
  for (Part& part : parts_) {
    if (!part.is_kept || leaves == nullptr) continue;
    part.own_leaf = leaves_.size();
    leaves_.reserve(leaves_.size() + part.num_leaves);
    leaves_.append(*leaves, part.first_leaf, part.num_leaves);
    leaves_.append_beside(*leaves, part.first_node, part.end_node, part.first_static, part.end_static);
    std::unordered_set<PyObject*> seen;  // one look at each object is enough: the key is of one moment
    for (std::size_t i = part.first_static; i < part.end_static; ++i) {
      const StaticValue& value = spec.statics[i];
      PyObject* const own = leaves->own_static(i);
      if (own == nullptr || value.is_callable() || is_atom(own)) continue;
      Ref object = Ref::borrow(own);
      if (seen.insert(object.get()).second) part.may_change.push_back({as_it_is(object), std::move(object)});
    }
  }
}

bool KeptValues::has_node(std::size_t node) const noexcept {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.is_kept && part.first_node <= node && node < part.end_node; });
}

void KeptValues::clear_leaf(std::size_t leaf) {
  is_kept_[leaf] = false;
  for (const Part& part : parts_) {
    if (!part.is_kept || leaf < part.first_leaf || leaf >= part.first_leaf + part.num_leaves) continue;
    leaves_.replace(part.own_leaf + leaf - part.first_leaf, Py_None);
  }
}

bool KeptValues::append_to(LeafBuffer& leaves, std::size_t value) const {
  const Part& part = parts_[value];
  for (const auto& [before, object] : part.may_change) {
    if (!before.equals(object.get())) return false;
  }
  leaves.append(leaves_, part.own_leaf, part.num_leaves);
  leaves.append_beside(leaves_, part.first_node, part.end_node, part.first_static, part.end_static);
  return true;
}

}  // namespace partax
