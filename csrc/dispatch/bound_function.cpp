#include "dispatch/bound_function.h"

#include <algorithm>
#include <unordered_map>

#include "base/boxed.h"
#include "base/held_values.h"
#include "base/python_hooks.h"
#include "dispatch/call.h"

namespace partax {
namespace {

// The values of a call that are bound: each is there as often as in what is bound.
KeptValues bound_values(const Bindings& bindings, const Call& call) {
  std::unordered_map<PyObject*, std::ptrdiff_t> counts;
  for (PyObject* value : Items(bindings.args.get())) ++counts[value];
  for (PyObject* value : Items(bindings.keyword_values.get())) ++counts[value];
  const JitFunction& jit = call.jit();
  if (bindings.keeps_callable) ++counts[jit.self];
  if (bindings.keeps_callable && jit.callable_is_tree) ++counts[jit.function];
  const Ref values = call.values();
  for (PyObject* value : Items(values.get())) --counts[value];
  std::vector<bool> are_bound;
  for (PyObject* value : Items(values.get())) are_bound.push_back(counts[value] == 0);
  return {call.program()->key, are_bound, call.leaves()};
}

// ---- As a Python type.

struct BoundFunction {
  Boxed<Bindings> box;
  vectorcallfunc vectorcall;
};

PyObject* bound_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf,
                           PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    Bindings& bindings = Boxed<Bindings>::in(self);
    const Items bound(bindings.args.get()), bound_keywords(bindings.keyword_values.get());
    const auto num_args = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
    const auto num_named = static_cast<std::size_t>(keyword_names == nullptr ? 0 : PyTuple_GET_SIZE(keyword_names));
    const std::size_t num_positional = bound.size() + num_args;
    // In the order of a vectorcall: first what is bound.
    HeldValues values(num_positional + bound_keywords.size() + num_named);
    PyObject** next = std::copy_n(args, num_args, std::copy(bound.begin(), bound.end(), values.to_fill()));
    next = std::copy(bound_keywords.begin(), bound_keywords.end(), next);
    std::copy_n(args + num_args, num_named, next);
    Ref names = bindings.names ? bindings.names : Ref::borrow(keyword_names);
    if (bindings.names && num_named != 0) {
      for (PyObject* given_name : Items(keyword_names)) {
        if (checked_int(PySequence_Contains(bindings.names.get(), given_name)) == 0) continue;
        raise_error(PyExc_TypeError, "got multiple values for argument '%U', which is bound; rebind it", given_name);
      }
      names = Ref::checked(PySequence_Concat(bindings.names.get(), keyword_names));
    }
    return run_call(as_jit(bindings.jit.get()), values.to_fill(), num_positional, names.get(), &bindings).release();
  });
}

template <Ref Bindings::* kPart>
PyObject* get(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return Ref(Boxed<Bindings>::in(self).*kPart).release(); });
}

PyObject* get_keywords(PyObject* self, void*) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return PyDict_Copy(Boxed<Bindings>::in(self).keywords.get()); });
}

PyGetSetDef binding_getset[] = {
    {"func", get<&Bindings::jit>, nullptr, "The wrapper.", nullptr},
    {"args", get<&Bindings::args>, nullptr, "The leading arguments that are bound, a tuple.", nullptr},
    {"keywords", get_keywords, nullptr, "The keywords that are bound, a dictionary.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef binding_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundFunction, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Boxed<Bindings>, weakrefs), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

}  // namespace

void Bindings::refuse_donated(Call& call) const {
  for (const KeptValues::Part& part : bound_values(*this, call).parts) {
    for (std::size_t i = part.first_leaf; part.is_kept && i < part.first_leaf + part.num_leaves; ++i) {
      if (call.program()->leaves.donated.at(i) != 0) python::refuse_donated(call.view(), number(i));
    }
  }
}

void Bindings::add_program(const Call& call, const Ref& returned) {
  constexpr std::size_t kMost = 16;  // each program, and each attempt to make one, looks at all arrays
  const ProgramPtr& program = call.program();
  const ProgramTable& table = call.cache().table;
  const bool have_changed = call.cache().graph && !call.has_changed_values_alone();
  BoundPrograms old_programs;  // dropped at the end, since that may run any code
  old_programs.swap(programs);
  std::copy_if(old_programs.begin(), old_programs.end(), std::back_inserter(programs),
               [&](const auto& bound) { return !have_changed && bound->program(table); });
  if (have_changed || !program->is_in(table) || program->target.waits ||
      std::max(programs.size(), num_failures) >= kMost)
    return;
  if (auto bound = BoundProgram::make(program, bound_values(*this, call), returned)) {
    programs.insert(programs.begin(), std::move(bound));
  } else {
    ++num_failures;
  }
}

void register_bound_function_type(PyObject* module) {
  Boxed<Bindings>::type = add_boxed_type<Bindings>(
      module, "partax._core.BoundFunction",
      "A compiled callable with arguments that are read, checked and kept once: the result of `bind`.",
      {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
       {Py_tp_methods, generic_methods},
       {Py_tp_getset, binding_getset},
       {Py_tp_members, binding_members}},
      Py_TPFLAGS_HAVE_VECTORCALL, sizeof(BoundFunction));
}

Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable) {
  check_is_wrapper(jit);
  const Ref values = Ref::checked(PySequence_Tuple(Ref::checked(PyDict_Values(kwargs)).get()));
  const Ref names = PyDict_GET_SIZE(kwargs) == 0 ? Ref() : Ref::checked(PySequence_Tuple(kwargs));
  Ref object = box(std::make_unique<Bindings>(Bindings{
      Ref::borrow(jit), Ref::borrow(args), Ref::checked(PyDict_Copy(kwargs)), names, values, keeps_callable, {}}));
  reinterpret_cast<BoundFunction*>(object.get())->vectorcall = bound_vectorcall;
  return object;
}

}  // namespace partax
