#include "call/bound_programs.h"

#include <algorithm>

#include "base/boxed.h"
#include "base/python_hooks.h"
#include "call/call.h"

namespace partax {
namespace {

constexpr std::size_t kMostAttempts = 16;  // of one program to make direct runs: each looks at all of its arrays

// Whether an object is an array of jax that is not traced: also one of random keys.
bool is_concrete_array(PyObject* object) {
  if (object == nullptr) return false;
  return hooks().jax_array_type.is(Py_TYPE(object)) || TypeTable::instance().find(object).sort == LeafSort::kJaxArray;
}

std::size_t size_of(PyObject* tuple) {
  return tuple == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
}

}  // namespace

std::shared_ptr<BoundProgram> BoundProgram::make(const ProgramPtr& program, const IsBound& values,
                                                 const LeafBuffer& leaves) {
  std::vector<BoundVariable> variables;
  const KeptValues bound(program->key, values, nullptr);
  const std::vector<Node>& nodes = program->key.nodes;
  std::size_t leaf = 0, hint = 0;
  for (std::size_t at = 0; program->objects && at < nodes.size(); ++at) {
    leaf += at > 0 && nodes[at - 1].kind == Kind::kDynamicLeaf ? 1 : 0;
    PyObject* object = nodes[at].kind == Kind::kEntries && bound.has_node(at) ? leaves.node(at, hint) : nullptr;
    if (object == nullptr || !is_variable(object)) continue;
    const bool is_array = nodes[at].extent == 2 && nodes[at + 1].kind == Kind::kDynamicLeaf;
    const Ref value = variable_value(object);
    if (!is_array || !is_concrete_array(leaves[leaf]) || !is_concrete_array(value.get())) return {};
    variables.push_back({Ref::borrow(object), leaf, value.get() != leaves[leaf]});
  }
  return std::make_shared<BoundProgram>(program, values, leaves, std::move(variables));
}

BoundProgram::BoundProgram(const ProgramPtr& program, const IsBound& values, const LeafBuffer& leaves,
                           std::vector<BoundVariable> variables)
    : program_(program), kept_(program->key, values, &leaves), variables_(std::move(variables)) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!kept_.is_kept()[i]) free_.push_back(static_cast<std::uint32_t>(i));
  }
  for (const bool is_set : {true, false}) {
    for (const BoundVariable& variable : variables_) {
      if (variable.is_set == is_set) free_.push_back(static_cast<std::uint32_t>(variable.leaf));
    }
    num_changing_ = is_set ? free_.size() : num_changing_;
  }
  for (const BoundVariable& variable : variables_) kept_.clear_leaf(variable.leaf);
}

ProgramPtr BoundProgram::program(const ProgramTable& table) const noexcept {
  ProgramPtr program = program_.lock();
  return program && program->table == &table ? program : ProgramPtr();
}

bool BoundProgram::read_variables(LeafBuffer& leaves) const {
  for (const BoundVariable& variable : variables_) {
    const Ref value = variable_value(variable.object.get());
    if (!is_concrete_array(value.get())) return false;
    leaves.replace(variable.leaf, value.get());
  }
  return true;
}

Ref BoundProgram::run(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < runs_.size();) {
    const std::shared_ptr<DirectRun> direct = runs_[i++];
    if (!direct->is_for(leaves, free_)) continue;
    try {
      return direct->run(leaves, free_);
    } catch (const PythonError&) {
      // Of arrays that are gone, the target says which.
      Ref error = take_exception();
      if (are_any_deleted(leaves)) return {};
      restore_exception(std::move(error));
      throw;
    }
  }
  return {};
}

void BoundProgram::add_run(const Program& program, const LeafBuffer& leaves, const Ref& returned) {
  if (attempts_ >= kMostAttempts) return;
  ++attempts_;
  if (auto run = DirectRun::make(program, leaves, free_, num_changing_, returned))
    runs_.insert(runs_.begin(), std::move(run));
}

void refuse_donated(Call& call, const IsBound& values) {
  const Program& program = *call.program();
  const KeptValues bound(program.key, values, nullptr);
  for (std::size_t i = 0; i < program.donated.size(); ++i) {
    if (program.donated[i] != 0 && bound.is_kept().at(i)) python::refuse_donated(call.view(), number(i));
  }
}

BoundArguments::BoundArguments(Bindings& bindings, PyObject* const* args, std::size_t num_args, PyObject* keyword_names)
    : bindings_(bindings),
      num_positional_(size_of(bindings.args.get()) + num_args),
      size_(num_positional_ + size_of(bindings.named.get()) + size_of(keyword_names)),
      all_(size_),
      data_(all_.to_fill()) {
  const std::size_t num_named = size_of(keyword_names);
  const Items bound(bindings.args.get()), named(bindings.named.get());
  PyObject** next = std::copy(bound.begin(), bound.end(), all_.to_fill());
  next = std::copy_n(args, num_args, next);
  next = std::copy(named.begin(), named.end(), next);
  std::copy_n(args + num_args, num_named, next);
  names_ = bindings.names ? bindings.names : Ref::borrow(keyword_names);
  if (!bindings.names || num_named == 0) return;
  for (std::size_t i = 0; i < num_named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(keyword_names, static_cast<Py_ssize_t>(i));
    if (checked_int(PySequence_Contains(bindings.names.get(), name)) == 0) continue;
    raise_error(PyExc_TypeError, "got multiple values for argument '%U', which is bound; rebind it", name);
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
  const auto callable = [&](PyObject* part) { return part == nullptr || bindings_.keeps_callable ? part : free.get(); };
  const BoundCall call(parameters, callable(jit.callable_is_tree ? jit.function : nullptr), callable(jit.self),
                       marked.data(), num_positional_, names_.get());
  IsBound are_bound;
  for (std::size_t i = 0; i < call.size(); ++i) are_bound.push_back(call.values()[i] != free.get());
  return are_bound;
}

// ---- What `bind` returns, as a Python type.

namespace {

struct BoundFunction {
  Boxed<Bindings> box;
  vectorcallfunc vectorcall;
};

PyObject* bound_vectorcall(PyObject* self, PyObject* const* args, std::size_t nargsf,
                           PyObject* keyword_names) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    const Ref keep = Ref::borrow(self);
    Bindings& bindings = Boxed<Bindings>::in(self);
    const BoundArguments all(bindings, args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), keyword_names);
    return run_call(as_jit(bindings.jit.get()), all.data(), all.num_positional(), all.names(), &all).release();
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

constexpr char kBoundDoc[] =
    "A compiled callable with arguments that are read, checked and kept once: the result of `bind`.";

}  // namespace

void register_bound_function_type(PyObject* module) {
  Boxed<Bindings>::type = add_boxed_type<Bindings>(module, "partax._core.BoundFunction", kBoundDoc,
                                                   {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                                    {Py_tp_methods, generic_methods},
                                                    {Py_tp_getset, binding_getset},
                                                    {Py_tp_members, binding_members}},
                                                   Py_TPFLAGS_HAVE_VECTORCALL, sizeof(BoundFunction));
}

Ref make_bound_function(PyObject* jit, PyObject* args, PyObject* kwargs, bool keeps_callable) {
  check_is_wrapper(jit);
  auto bindings = std::make_unique<Bindings>();
  bindings->jit = Ref::borrow(jit);
  bindings->keeps_callable = keeps_callable;
  bindings->args = Ref::borrow(args);
  bindings->keywords = Ref::checked(PyDict_Copy(kwargs));
  if (PyDict_GET_SIZE(kwargs) != 0) bindings->names = Ref::checked(PySequence_Tuple(kwargs));
  bindings->named = Ref::checked(PySequence_Tuple(Ref::checked(PyDict_Values(kwargs)).get()));
  Ref object = box(std::move(bindings));
  reinterpret_cast<BoundFunction*>(object.get())->vectorcall = bound_vectorcall;
  return object;
}

}  // namespace partax
