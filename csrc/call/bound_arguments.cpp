#include "call/bound_arguments.h"

#include "base/python_hooks.h"

namespace partax {
namespace {

std::size_t size_of(PyObject* tuple) {
  return tuple == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
}

PyObject** copy_items(const Ref& tuple, PyObject** to) {
  return std::copy_n(reinterpret_cast<PyTupleObject*>(tuple.get())->ob_item, size_of(tuple.get()), to);
}

}  // namespace

BoundArguments::BoundArguments(Bindings& bindings, PyObject* const* args, std::size_t num_args, PyObject* keyword_names)
    : bindings_(bindings),
      num_positional_(size_of(bindings.args.get()) + num_args),
      size_(num_positional_ + size_of(bindings.named.get()) + size_of(keyword_names)),
      all_(size_),
      data_(all_.to_fill()) {
  const std::size_t num_named = size_of(keyword_names);
  PyObject** next = copy_items(bindings.args, all_.to_fill());
  next = std::copy_n(args, num_args, next);
  next = copy_items(bindings.named, next);
  std::copy_n(args + num_args, num_named, next);
  names_ = bindings.names ? bindings.names : Ref::borrow(keyword_names);
  if (!bindings.names || num_named == 0) return;
  for (std::size_t i = 0; i < num_named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, static_cast<Py_ssize_t>(i));
    if (checked_int(PySequence_Contains(bindings.names.get(), name)) == 0) continue;
    PyErr_Format(PyExc_TypeError, "got multiple values for argument '%U', which is bound; rebind it", name);
    throw PythonError{};
  }
  names_ = Ref::checked(PySequence_Concat(bindings.names.get(), keyword_names));
}

IsBound BoundArguments::are_bound(const JitFunction& jit, const Parameters& parameters) const {
  const Ref free = Ref::checked(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)));
  const std::size_t num_bound = size_of(bindings_.args.get()), num_named = size_of(bindings_.named.get());
  std::vector<PyObject*> marked(data_, data_ + size_);
  for (std::size_t i = 0; i < marked.size(); ++i) {
    const bool is_bound = i < num_bound || (i >= num_positional_ && i < num_positional_ + num_named);
    if (!is_bound) marked[i] = free.get();
  }
  const auto callable = [&](PyObject* it) { return it == nullptr || bindings_.keeps_callable ? it : free.get(); };
  const BoundCall call(parameters, callable(jit.callable_is_tree ? jit.function : nullptr), callable(jit.self),
                       marked.data(), num_positional_, names_.get());
  IsBound found;
  for (std::size_t i = 0; i < call.size(); ++i) found.push_back(call.values()[i] != free.get());
  return found;
}

int Bindings::traverse(visitproc visit, void* arg) const {
  for (const Ref* it : {&jit, &args, &keywords, &names, &named}) Py_VISIT(it->get());
  return programs.traverse(visit, arg);
}

}  // namespace partax
