#include "call/bound_programs.h"

#include <algorithm>

#include "base/boxed.h"
#include "base/python_hooks.h"
#include "call/call.h"
#include "statics/callable_parts.h"
#include "statics/static_form.h"

namespace partax {
namespace {

constexpr std::size_t kMostPrograms = 16;
constexpr std::size_t kMostRuns = 16;
constexpr std::size_t kMostFailures = 2;  // of one program: each looks at all of its arrays

// Whether some that are bound hold what could change while they hold it, such as a dictionary of arrays.
bool hold_changeable(const std::vector<HeldVariable>& variables, const KeptValues& bound) {
  return std::any_of(variables.begin(), variables.end(), [&](const HeldVariable& it) {
    const bool is_seen = it.is_array || (it.value && form_of(it.value.get()) == Form::kAtom);
    return !is_seen && bound.has_node(it.node);
  });
}

std::size_t size_of(PyObject* tuple) {
  return tuple == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
}

}  // namespace

BoundProgram::BoundProgram(const EntryPtr& entry, const IsBound& values, const LeafBuffer& leaves,
                           const std::vector<HeldVariable>& variables)
    : entry_(entry), kept_(entry->key, values, &leaves) {
  std::vector<bool> is_kept = kept_.is_kept();
  for (const HeldVariable& it : variables) {
    if (!kept_.has_node(it.node)) continue;
    variables_.push_back(it);
    if (!it.is_array || it.now().get() == it.value.get()) continue;
    is_kept[it.leaf] = false;
    kept_.let_go(it.leaf);
    variables_.back().value.reset();
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!is_kept[i]) free_.push_back(static_cast<std::uint32_t>(i));
  }
}

EntryPtr BoundProgram::entry(const EntryTable& table) const noexcept {
  EntryPtr entry = entry_.lock();
  return entry && entry->table == &table ? entry : EntryPtr();
}

bool BoundProgram::is_like(const Entry& entry, const KeptValues& bound) const {
  const EntryPtr own = entry_.lock();
  return own && attempt([&] { return own.get() == &entry || kept_.is_like(own->key, bound, entry.key); },
                        [] { return false; });
}

bool BoundProgram::read(LeafBuffer& leaves) const {
  for (const HeldVariable& it : variables_) {
    const Ref now = it.now();
    if (it.value ? now.get() != it.value.get() : !now || !hooks().jax_array_type.is(Py_TYPE(now.get()))) return false;
    if (!it.value) leaves.replace(it.leaf, now.get());
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

void BoundProgram::learn(const Entry& entry, const LeafBuffer& leaves, const Ref& returned) {
  if (runs_.size() >= kMostRuns || failures_ >= kMostFailures) return;
  ++failures_;
  if (auto made = DirectRun::make(entry, leaves, free_, returned)) {
    runs_.insert(runs_.begin(), std::move(made));
    --failures_;
  }
}

std::shared_ptr<BoundProgram> BoundPrograms::add(const EntryPtr& entry, const IsBound& values, const LeafBuffer& leaves,
                                                 const GraphObjects* graph) {
  std::vector<HeldVariable> variables;
  if (graph != nullptr) {
    variables = graph->variables(*entry, leaves);
    // Where others change what is bound between two calls, each is an ordinary one until it stays as it is.
    const bool has_settled = have_stayed(variables);
    if (!graph->may_be_bound() || !has_settled || hold_changeable(variables, KeptValues(entry->key, values, nullptr))) {
      return {};
    }
  }
  auto program = std::make_shared<BoundProgram>(entry, values, leaves, variables);
  std::vector<std::shared_ptr<BoundProgram>> others{program};  // let go of where nothing is changed
  for (const auto& it : programs_) {
    const EntryPtr its = entry->table == nullptr ? EntryPtr() : it->entry(*entry->table);
    if (its && its != entry && others.size() < kMostPrograms) others.push_back(it);
  }
  programs_.swap(others);
  return program;
}

void BoundPrograms::drop_unlike(const Entry& entry, const IsBound& values) {
  const KeptValues bound(entry.key, values, nullptr);
  std::vector<std::shared_ptr<BoundProgram>> known = programs_, alike;
  std::copy_if(known.begin(), known.end(), std::back_inserter(alike),
               [&](const auto& it) { return it->is_like(entry, bound); });
  programs_.swap(alike);
}

bool BoundPrograms::have_stayed(const std::vector<HeldVariable>& variables) {
  std::vector<PyObject*> before, after;
  for (const HeldVariable& it : variables) {
    before.push_back(it.value.get());
    after.push_back(it.now().get());
  }
  const bool same = before == last_;
  last_ = std::move(after);
  return same;
}

void refuse_donated(const Entry& entry, const IsBound& values) {
  const KeptValues bound(entry.key, values, nullptr);
  for (std::size_t i = 0; i < entry.donated.size(); ++i) {
    if (entry.donated[i] != 0 && bound.is_kept().at(i)) python::refuse_donated(number(i));
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
  const auto callable = [&](PyObject* it) { return it == nullptr || bindings_.keeps_callable ? it : free.get(); };
  const BoundCall call(parameters, callable(jit.callable_is_tree ? jit.function : nullptr), callable(jit.self),
                       marked.data(), num_positional_, names_.get());
  IsBound found;
  for (std::size_t i = 0; i < call.size(); ++i) found.push_back(call.values()[i] != free.get());
  return found;
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
    "A compiled function with arguments that are read, checked and kept once: what `bind` returns.";

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
