#include "call/register_call.h"

#include "base/binding.h"
#include "call/bound_function.h"
#include "call/build_target.h"
#include "call/cache_object.h"
#include "call/call_frame.h"
#include "call/explain_retrace.h"
#include "call/graph_objects.h"
#include "call/jit_function.h"
#include "call/prepared_call.h"
#include "call/targets.h"
#include "call/trace.h"
#include "call/user_result.h"

namespace py = pybind11;

namespace partax {
namespace {

PyObject* trace(PyObject*, PyObject* const* leaves, Py_ssize_t count) noexcept {
  return guarded<PyObject*>(nullptr, [&] { return run_trace(leaves, static_cast<std::size_t>(count)).release(); });
}

PyMethodDef trace_method = {"trace", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(trace)), METH_FASTCALL,
                            "trace(*leaves)\n--\n\nThe body of a target: the user's function on tracers."};

PyObject* new_prepared_call(PyTypeObject*, PyObject* given, PyObject* named) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject *jit = nullptr, *args = nullptr, *kwargs = nullptr;
    int abstract = 0;
    const char* names[] = {"jit", "args", "kwargs", "abstract", nullptr};
    if (PyArg_ParseTupleAndKeywords(given, named, "OO!O!p:PreparedCall", const_cast<char**>(names), &jit, &PyTuple_Type,
                                    &args, &PyDict_Type, &kwargs, &abstract) == 0) {
      throw PythonError{};
    }
    if (!is_jit_function(jit)) {
      PyErr_SetString(PyExc_TypeError, "expected a filter_jit wrapper");
      throw PythonError{};
    }
    const auto prepare = [&] { return std::make_unique<PreparedCall>(jit, args, kwargs, abstract != 0); };
    return box_made<PreparedCall>(prepare).release();
  });
}

PyObject* new_targets(PyTypeObject*, PyObject* given, PyObject* named) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject *owners = nullptr, *names = nullptr;
    const char* keywords[] = {"owners", "names", nullptr};
    if (PyArg_ParseTupleAndKeywords(given, named, "O!O!:Targets", const_cast<char**>(keywords), &PyTuple_Type, &owners,
                                    &PyTuple_Type, &names) == 0) {
      throw PythonError{};
    }
    if (PyTuple_GET_SIZE(owners) != PyTuple_GET_SIZE(names)) {
      PyErr_SetString(PyExc_ValueError, "expected a name for each owner");
      throw PythonError{};
    }
    const auto make = [&] { return std::make_unique<Targets>(Targets{Ref::borrow(owners), Ref::borrow(names)}); };
    return box_made<Targets>(make).release();
  });
}

py::object call_shape() {
  const CallFrame* frame = CallFrame::innermost();
  if (frame == nullptr) throw std::runtime_error("partax: no call is under way");
  return give(shape_data(frame->cache.parameters, frame->call.shape(), frame->call.has_callable()));
}

py::tuple output_info(const py::object& node) {
  if (!is_output_node(node.ptr())) return py::make_tuple(py::list(), py::none());
  const std::shared_ptr<const TraceOutput> output = output_of(node.ptr());
  py::list forwarded;
  for (const std::int32_t source : output->source) {
    if (source < 0) forwarded.append(number(~static_cast<std::size_t>(source)));
  }
  return py::make_tuple(forwarded,
                        output->shardings ? py::reinterpret_borrow<py::object>(output->shardings.get()) : py::none());
}

}  // namespace

template <>
struct IsBoxed<PreparedCall> : std::true_type {};
template <>
struct IsBoxed<Targets> : std::true_type {};

namespace {

void register_wrapper(py::module_& module) {
  const py::object jit = give(register_jit_function_types());
  module.attr("JitFunction") = jit[py::int_(0)];
  module.attr("BoundJitFunction") = jit[py::int_(1)];
  module.attr("_flatten_jit") = jit[py::int_(2)];
  module.attr("_unflatten_jit") = jit[py::int_(3)];
  define(
      module, "make_jit_function",
      [](const py::object& function, const py::object& options) {
        return give(make_jit_function(function.ptr(), options.ptr()));
      },
      py::arg("function"), py::arg("options"));
  module.attr("BoundFunction") = give(register_bound_function_type());
  define(
      module, "make_bound_function",
      [](const py::object& jit, const py::tuple& args, const py::dict& kwargs, bool keeps_callable) {
        if (!is_jit_function(jit.ptr())) throw py::type_error("expected a filter_jit wrapper");
        return give(make_bound_function(jit.ptr(), args.ptr(), kwargs.ptr(), keeps_callable));
      },
      py::arg("jit"), py::arg("args"), py::arg("kwargs"), py::arg("keeps_callable"));
}

void register_output(py::module_& module) {
  const py::object output = give(register_trace_output_types());
  module.attr("TraceOutput") = output[py::int_(0)];
  module.attr("OutputNode") = output[py::int_(1)];
  module.attr("_flatten_output") = output[py::int_(2)];
  module.attr("_unflatten_output") = output[py::int_(3)];
  define(module, "output_info", &output_info, py::arg("node"));
  define(
      module, "with_children",
      [](const py::object& node, const py::tuple& children) {
        if (!is_output_node(node.ptr())) throw py::type_error("expected an output node");
        return give(with_children(node.ptr(), Ref::borrow(children.ptr())));
      },
      py::arg("node"), py::arg("children"));
}

// What Python asks while a call is under way.
void register_call_under_way(py::module_& module) {
  module.attr("trace") = give(Ref::checked(PyCFunction_New(&trace_method, nullptr)));
  define(
      module, "on_call_exit", [](const py::object& callback) { return on_call_exit(callback.ptr()); },
      py::arg("callback"));
  define(
      module, "call_under_way", [] { return give(call_under_way()); },
      "(history, record) of the call whose target jax works on now in this thread, or None.");
  define(module, "call_shape", &call_shape, "Which values the call under way has.");
  define(
      module, "call_body",
      [](const py::object& callable, const py::tuple& values) {
        std::vector<Ref> given;
        for (const py::handle value : values) given.push_back(Ref::borrow(value.ptr()));
        return give(call_body(callable.ptr(), given));
      },
      py::arg("callable"), py::arg("values"), "Calls the function of the call under way with other values.");
  define(
      module, "set_variable_slots",
      [](const py::object& value, const py::object& state, const py::object& trace) {
        set_variable_slots(value.ptr(), state.ptr(), trace.ptr());
      },
      py::arg("value"), py::arg("state"), py::arg("trace"));
  define(
      module, "set_static_cache",
      [](const py::object& owner, const py::str& name) { set_static_cache(owner.ptr(), name.ptr()); }, py::arg("owner"),
      py::arg("name"));
  define(module, "set_record", [](const py::object& record) { set_record(record.ptr()); }, py::arg("record"));
  define(
      module, "describe_call", [] { return give(describe_call()); },
      "(parts, array leaves) of the call under way: all that its program may depend on.");
}

void register_store(py::module_& module) {
  define(module, "store_programs", [](bool stored) { programs_are_stored = stored; }, py::arg("stored"));
  define(module, "forget_program", &forget_program);
  define(
      module, "stored_result",
      [](const py::object& node) {
        if (!is_output_node(node.ptr())) throw py::type_error("expected an output node");
        return give(stored_result(node.ptr()));
      },
      py::arg("node"), "The result of a trace as it is stored, or None.");
  define(
      module, "call_progress",
      [] {
        const CallFrame* frame = CallFrame::innermost();
        return py::make_tuple(frame != nullptr && frame->is_stored, frame != nullptr && frame->traced);
      },
      "Whether the call under way has asked for stored programs, and whether it has traced.");
  define(module, "note_load", [] { return give(note_load()); });
  define(
      module, "called_function",
      [] {
        const CallFrame* frame = CallFrame::innermost();
        return frame == nullptr ? py::none() : give(Ref::borrow(frame->function));
      },
      "The wrapped callable of the call under way.");
  define(
      module, "restore_output",
      [](const py::object& result, const py::tuple& inputs) {
        return give(restore_output(result.ptr(), inputs.ptr()));
      },
      py::arg("result"), py::arg("inputs"));
}

void register_targets(py::module_& module) {
  BoxedClass<Targets>(module, "partax._core.Targets", "Which attributes of which objects an outcome sets.", new_targets)
      .def_property("owners", [](const Targets& targets) { return give(Ref::borrow(targets.owners.get())); })
      .def_property("names", [](const Targets& targets) { return give(Ref::borrow(targets.names.get())); });
}

void register_prepared_call(py::module_& module) {
  BoxedClass<PreparedCall>(module, "partax._core.PreparedCall", "A call that is run step by step.", new_prepared_call)
      .def_property("record", [](const PreparedCall& call) { return give(Ref::borrow(call.record())); })
      .def_property("stored", [](const PreparedCall& call) { return give(Ref::borrow(call.stored())); })
      .def_property("objects", [](const PreparedCall& call) { return give(Ref::borrow(call.attached().objects())); })
      .def_property("leaves", [](const PreparedCall& call) { return give(Ref::borrow(call.attached().leaves())); })
      .def(
          "run",
          [](const PreparedCall& call, const py::object& callable) {
            return give(call.attached().run(callable.ptr()));
          },
          py::arg("callable"))
      .def(
          "result",
          [](const PreparedCall& call, const py::object& returned, const py::tuple& leaves) {
            return give(call.attached().result(returned.ptr(), leaves.ptr()));
          },
          py::arg("returned"), py::arg("leaves"))
      .def(
          "rebind",
          [](const PreparedCall& call, const py::tuple& args, const py::dict& kwargs) {
            std::unique_ptr<PreparedCall> other = call.rebind(args.ptr(), kwargs.ptr());
            return other ? give(box(std::move(other))) : py::none();
          },
          py::arg("args"), py::arg("kwargs"))
      .def("detach", &PreparedCall::detach)
      .def(
          "compiled",
          [](const py::object& call, const py::object& executable) {
            if (Py_TYPE(call.ptr()) != Boxed<PreparedCall>::type) throw py::type_error("expected a PreparedCall");
            return give(make_compiled_call(call.ptr(), executable.ptr()));
          },
          py::arg("executable"))
      .def("described", [](const PreparedCall& call) { return give(call.attached().described()); })
      .def(
          "described_of",
          [](const PreparedCall& call, const py::tuple& args, const py::dict& kwargs) {
            return give(call.described_of(args.ptr(), kwargs.ptr()));
          },
          py::arg("args"), py::arg("kwargs"));
}

}  // namespace

void register_call(py::module_& module) {
  module.attr("CallCache") = give(register_cache_type());
  define(
      module, "caches", [](py::handle callable) { return give(living_caches(callable.ptr())); },
      "The caches of all callables that live, or of this one: for all options and states that it has been called with.",
      py::arg("callable") = py::none());
  register_wrapper(module);
  register_output(module);
  register_call_under_way(module);
  register_store(module);
  register_targets(module);
  register_prepared_call(module);
}

}  // namespace partax
