#include "dispatch/output.h"

#include <algorithm>
#include <unordered_map>

#include "base/boxed.h"
#include "base/held_values.h"
#include "base/python_hooks.h"
#include "pytree/spec_data.h"

namespace partax {
namespace {

// Whether a static value is, or holds, an object that may be equal to another one.
bool has_own_object(PyObject* value) {
  const Form form = form_of(value);
  if (is_composite(form)) {
    check_depth();
    bool has_any = false;
    each_item(value, form, [&](const Ref& item) { has_any = has_any || (item && has_own_object(item.get())); });
    return has_any;
  }
  const TypeInfo& info = TypeTable::instance().find(value);
  const CallableSort sort = callable_sort(value);
  if (info.traits.is_enum) return false;
  if (form == Form::kGeneric || sort == CallableSort::kOther) return !info.traits.is_installed;
  if (form != Form::kIdentity) return sort == CallableSort::kMethod;
  return !PyType_Check(value) && !PyModule_Check(value) && PyCallable_Check(value) == 0;
}

}  // namespace

void TraceOutput::find_static_sources(const TreeSpec& arguments, const TreeSpec& key) {
  std::unordered_map<PyObject*, std::int32_t> sources;  // by object, the first index in the key
  for (std::size_t i = 0; i < arguments.statics.size(); ++i) {
    PyObject* const object = arguments.statics[i].identity();
    if (object != nullptr && !is_plain(object)) sources.emplace(object, static_cast<std::int32_t>(i));
  }
  bool any = false;
  for (StaticValue& value : spec.statics) {
    const auto source = sources.find(value.identity());
    static_source.push_back(source == sources.end() ? kStored : source->second);
    if (source == sources.end()) {
      has_own_objects = has_own_objects || (!value.absent() && has_own_object(value.identity()));
      value.own();
      continue;
    }
    any = true;
    value = key.statics[static_cast<std::size_t>(source->second)].for_result();
  }
  if (!any) static_source.clear();
  for (const StaticValue& value : spec.statics) spec.identity.push_back(value.identity());
  spec.weaken_types(key);
}

// ---- What a target returns to jax.

namespace {

// The aux data of an output node. Two are equal if jax may lay the same out_shardings over both.
struct Handle {
  std::shared_ptr<OutputSlot> slot;
  bool has_shardings;
  std::vector<std::int32_t> source;  // where it is not that of the output; else empty

  // What a running call holds too is not the handle's alone to report.
  int traverse(visitproc visit, void* arg) const {
    if (slot.use_count() > 1 || slot->output.use_count() != 1) return 0;
    return slot->output->traverse(visit, arg);
  }
};

struct OutputNode {
  Ref handle, results;  // the latter a tuple
  int traverse(visitproc visit, void* arg) const { return visit_all(visit, arg, handle, results); }
};

bool is_handle(PyObject* object) noexcept { return Py_TYPE(object) == Boxed<Handle>::type; }

// Null once the garbage collector has cleared it.
const Handle* handle_in(PyObject* object) noexcept { return reinterpret_cast<Boxed<Handle>*>(object)->value; }

// Null where nothing is left of it.
std::shared_ptr<const TraceOutput> output_in(PyObject* handle) noexcept {
  const Handle* content = handle_in(handle);
  return content == nullptr ? nullptr : content->slot->output;
}

PyObject* handle_compare(PyObject* self, PyObject* other, int op) noexcept {
  if (!is_handle(other) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const auto has_shardings = [](PyObject* handle) {
    const Handle* content = handle_in(handle);
    return content != nullptr && content->has_shardings;
  };
  // Most often without a turn: jax compares them in caches whose locks CPython lets go of where a thread waits.
  if (self == other || !has_shardings(self) || !has_shardings(other)) {
    return PyBool_FromLong((self == other) == (op == Py_EQ));
  }
  return guarded<PyObject*>(nullptr, [&] {
    const std::shared_ptr<const TraceOutput> mine = output_in(self), theirs = output_in(other);
    const bool equal = mine && theirs && are_equal(mine->shardings.get(), theirs->shardings.get());
    return PyBool_FromLong(equal == (op == Py_EQ));
  });
}

// Handles may become equal by their shardings, and none is ever in a large table.
Py_hash_t handle_hash(PyObject*) noexcept { return 1; }

Ref make_node(Ref handle, Ref results) {
  return box(std::make_unique<OutputNode>(OutputNode{std::move(handle), std::move(results)}));
}

const OutputNode& in_node(PyObject* node) {
  if (is_output_node(node)) return Boxed<OutputNode>::in(node);
  raise_error(PyExc_TypeError, "expected an output node");
}

PyObject* unflatten_node(PyObject*, PyObject* const* args, Py_ssize_t count) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    if (count != 2 || !is_handle(args[0])) raise_error(PyExc_TypeError, "expected a handle and its results");
    Ref results = PyTuple_CheckExact(args[1]) ? Ref::borrow(args[1]) : Ref::checked(PySequence_Tuple(args[1]));
    return make_node(Ref::borrow(args[0]), std::move(results)).release();
  });
}

PyMethodDef unflatten_output_method = {"unflatten_output",
                                       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(unflatten_node)),
                                       METH_FASTCALL, nullptr};

// A leaf of a call that is given back. Of a NumPy array, or of a number, a jax array is made.
Ref forwarded(PyObject* input) {
  if (hooks.jax_array_type.is(Py_TYPE(input))) return Ref::borrow(input);
  const LeafSort sort = TypeTable::instance().find(input).sort;
  const bool is_itself = sort == LeafSort::kJaxArray || sort == LeafSort::kTracer || sort == LeafSort::kAbstract;
  return is_itself ? Ref::borrow(input) : python::to_device(input);
}

}  // namespace

void register_trace_output_types(PyObject* module) {
  Boxed<OutputNode>::type =
      add_boxed_type<OutputNode>(module, "partax._core.OutputNode",
                                 "The arrays that a target returned, with what is needed to rebuild the result.", {});
  Boxed<Handle>::type =
      add_boxed_type<Handle>(module, "partax._core.TraceOutput", "What a trace returned except its arrays.",
                             {{Py_tp_richcompare, reinterpret_cast<void*>(handle_compare)},
                              {Py_tp_hash, reinterpret_cast<void*>(handle_hash)}});
  const Ref unflatten = Ref::checked(PyCFunction_New(&unflatten_output_method, nullptr));
  checked_int(PyModule_AddObjectRef(module, "_unflatten_output", unflatten.get()));
}

Ref make_output_node(std::shared_ptr<OutputSlot> slot, Ref results) {
  const bool has_shardings = static_cast<bool>(slot->output->shardings);
  return make_node(box(std::make_unique<Handle>(Handle{std::move(slot), has_shardings, {}})), std::move(results));
}

bool is_output_node(PyObject* object) noexcept { return Py_TYPE(object) == Boxed<OutputNode>::type; }

std::shared_ptr<const TraceOutput> output_of(PyObject* node) {
  std::shared_ptr<const TraceOutput> output = output_in(in_node(node).handle.get());
  if (!output) raise_error(PyExc_RuntimeError, "partax: the trace of this result has been dropped");
  return output;
}

Ref with_children(PyObject* node, Ref children) { return make_node(in_node(node).handle, std::move(children)); }

Ref with_leaves_through(PyObject* node, Ref children, PyObject* through) {
  const auto output = output_of(node);
  std::vector<std::int32_t> source = output->source;
  auto next = static_cast<std::int32_t>(PyTuple_GET_SIZE(in_node(node).results.get()));
  for (PyObject* leaf : Items(through)) {
    const auto forwarded = ~static_cast<std::int32_t>(PyLong_AsSize_t(leaf));
    std::replace(source.begin(), source.end(), forwarded, next++);
  }
  const Handle& plain = *handle_in(in_node(node).handle.get());
  Ref handle = box(std::make_unique<Handle>(Handle{plain.slot, plain.has_shardings, std::move(source)}));
  return make_node(std::move(handle), std::move(children));
}

const std::vector<std::int32_t>& sources_of(PyObject* node) {
  const Handle* handle = handle_in(in_node(node).handle.get());
  return handle == nullptr || handle->source.empty() ? output_of(node)->source : handle->source;
}

Ref flatten_output(PyObject* node) { return tuple_of({in_node(node).results, in_node(node).handle}); }

Ref results_of(PyObject* node) { return in_node(node).results; }

void set_stored_result(PyObject* node, Ref stored) {
  if (const Handle* handle = handle_in(in_node(node).handle.get())) std::swap(handle->slot->stored, stored);
}

Ref stored_result(PyObject* node) {
  const Handle* handle = handle_in(in_node(node).handle.get());
  return or_none(handle == nullptr ? Ref() : handle->slot->stored);
}

Ref user_result(PyObject* returned, const LeafBuffer& inputs) {
  if (!is_output_node(returned)) return Ref::borrow(returned);
  const std::shared_ptr<const TraceOutput> output = output_of(returned);
  ++*output->calls;
  const Items results(in_node(returned).results.get());
  const std::vector<std::int32_t>& sources = sources_of(returned);
  HeldValues leaves(sources.size());
  for (const std::ptrdiff_t source : sources) {
    leaves.append(source >= 0 ? Ref::borrow(results.begin()[source])
                              : forwarded(inputs[static_cast<std::size_t>(~source)]));
  }
  const InputReuse reuse{inputs, output->passthroughs, output->static_source};
  return rebuild(output->spec, leaves.to_fill(), sources.size(), &reuse);
}

}  // namespace partax
