#include "dispatch/bound_program.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "dispatch/output.h"

namespace partax {
namespace {

// The fields of partax._jax.programs.DirectRun.
enum : std::uint8_t { kProperties, kReader, kContext, kSettings, kExecute, kHandlers, kArrays, kPlaces, kSignatures };

bool is_array(PyObject* object) { return hooks.jax_array_type.is(Py_TYPE(object)); }

// The value of a property, in half the time of reading the attribute.
Ref read(PyObject* property, PyObject* object) {
  return Ref::checked(PyObject_Vectorcall(property, &object, 1, nullptr));
}

}  // namespace

bool BoundProgram::has_signature(PyObject* array, PyObject* signature) const {
  if (!is_array(array)) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(signature); ++i) {
    Ref value = read(Items(part(kProperties)).begin()[i], array);
    const Ref last_value = Ref::borrow(PyList_GET_ITEM(signature, i));  // another thread may replace it meanwhile
    if (value.get() == last_value.get()) continue;
    if (!are_equal(value.get(), last_value.get())) return false;
    PyList_SetItem(signature, i, value.release());  // the same object next time: arrays of one program share it
  }
  return true;
}

bool BoundProgram::find_free_leaves(const Program& program) {
  const LeafBuffer& leaves = kept_values_.leaves;
  const std::vector<Node>& nodes = program.key.nodes;
  std::size_t hint = 0;
  for (const KeptValues::Part& part : kept_values_.parts) {
    for (std::size_t i = part.first_static; part.is_kept && i < part.end_static; ++i) {
      PyObject* const own = leaves.own_static(i);
      if (own != nullptr && holds_mutable(own)) return false;
    }
    std::size_t leaf = part.first_leaf;
    for (std::size_t at = part.first_node; at < part.end_node; ++at) {
      const bool is_leaf = nodes[at].kind == Kind::kDynamicLeaf;
      const Slot* const slot = part.is_kept && program.objects ? variable_slot(nodes[at]) : nullptr;
      if (is_leaf && !part.is_kept) free_.push_back({leaf, {}, nullptr, true, -1, {}});
      if (slot != nullptr) {
        PyObject* const variable = leaves.node(at, hint);
        if (variable == nullptr || nodes[at].extent != 2 || nodes[at + 1].kind != Kind::kDynamicLeaf) return false;
        free_.push_back({leaf, Ref::borrow(variable), slot, slot->owned_of(variable).get() != leaves[leaf], -1, {}});
      }
      leaf += is_leaf ? 1 : 0;
    }
  }
  return true;
}

std::shared_ptr<BoundProgram> BoundProgram::make(const ProgramPtr& program, KeptValues kept_values,
                                                 const Ref& returned) {
  auto bound = std::make_shared<BoundProgram>(program, std::move(kept_values));
  LeafBuffer& leaves = bound->kept_values_.leaves;
  if (!std::all_of(leaves.arguments(), leaves.arguments() + leaves.size(), is_array)) return {};
  if (!bound->find_free_leaves(*program)) return {};
  std::vector<std::size_t> free;
  for (const FreeLeaf& each : bound->free_) free.push_back(each.leaf);
  const Ref target = program->target.jitted, stored = or_none(program->target.stored);
  bound->plan_ =
      python::direct_run(target, stored, truth(program->target.takes_tuple), leaves.tuple(), tuple_of_numbers(free));
  if (bound->plan_.get() == Py_None) return {};
  for (std::size_t i = 0; i < free.size(); ++i) {
    FreeLeaf& each = bound->free_[i];
    each.place = PyLong_AsSsize_t(Items(bound->part(kPlaces)).begin()[i]);
    each.signature = Ref::borrow(Items(bound->part(kSignatures)).begin()[i]);
    leaves.replace(each.leaf, Py_None);
  }
  if (is_output_node(returned.get())) bound->node_ = returned;
  return bound;
}

bool BoundProgram::is_for(LeafBuffer& leaves) {
  PyObject* const list = part(kArrays);
  for (FreeLeaf& each : free_) {
    if (each.variable) {
      const Ref value = each.slot->owned_of(each.variable.get());
      if (!value) return false;
      leaves.replace(each.leaf, value.get());
    }
    PyObject* const array = leaves[each.leaf];
    const bool is_same = !each.is_dropped && each.place >= 0 && PyList_GET_ITEM(list, each.place) == array;
    if (!is_same && !has_signature(array, each.signature.get())) return false;
  }
  for (PyObject* setting : Items(part(kSettings))) {
    PyObject* const* const items = Items(setting).begin();  // its reader, the object, and the value
    if (read(items[0], items[1]).get() != items[2]) return false;
  }
  return are_equal(Ref::checked(PyObject_CallNoArgs(part(kReader))).get(), part(kContext));
}

Ref BoundProgram::run(const LeafBuffer& leaves) {
  static Name consume("consume_with_handlers");
  if (std::exchange(is_running_, true)) return {};
  PyObject* const list = part(kArrays);
  for (const FreeLeaf& each : free_) {
    PyObject* const array = leaves[each.leaf];
    if (each.place < 0 || PyList_GET_ITEM(list, each.place) == array) continue;
    PyList_SetItem(list, each.place, Py_NewRef(array));
  }
  Ref arrays;
  try {
    const Away away;
    const Ref outputs = Ref::checked(PyObject_CallOneArg(part(kExecute), list));
    const Ref results = Ref::checked(PyObject_CallMethodOneArg(outputs.get(), consume.get(), part(kHandlers)));
    arrays = Ref::checked(PySequence_Tuple(results.get()));
  } catch (const PythonError&) {
    // The target raises it again, and says which array is gone.
  }
  for (const FreeLeaf& each : free_) {
    if (each.is_dropped && each.place >= 0) PyList_SetItem(list, each.place, Py_NewRef(Py_None));
  }
  is_running_ = false;
  if (!arrays) {
    forgive();
    return {};
  }
  return node_ ? with_children(node_.get(), std::move(arrays)) : Ref::borrow(PyTuple_GET_ITEM(arrays.get(), 0));
}

}  // namespace partax
