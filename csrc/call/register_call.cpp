// call/ runs a wrapped callable, and keeps what it was compiled to.
// In: the arguments of a call. Out: the result of its compiled program, rebuilt; or the error, explained.
#include "base/binding.h"
#include "call/bound_function.h"
#include "call/miss.h"
#include "call/output.h"
#include "call/prepared_call.h"

namespace py = pybind11;

namespace partax {
namespace {

PyObject* new_prepared_call(PyTypeObject*, PyObject* arguments, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject *jit = nullptr, *args = nullptr, *kwargs = nullptr;
    int abstract = 0;
    parse_tuple(arguments, "OO!O!p", &jit, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &abstract);
    check_is_wrapper(jit);
    const auto prepare = [&] { return std::make_unique<PreparedCall>(jit, args, kwargs, abstract != 0); };
    return box_made<PreparedCall>(prepare).release();
  });
}

// (the forwarded leaves, the shardings or None) of what a target has returned.
Ref output_info(PyObject* node) {
  std::vector<std::size_t> forwarded;
  if (!is_output_node(node)) return tuple_of({tuple_of_numbers(forwarded), or_none({})});
  const auto output = output_of(node);
  for (const std::int32_t source : sources_of(node)) {
    if (source < 0) forwarded.push_back(~static_cast<std::size_t>(source));
  }
  return tuple_of({tuple_of_numbers(forwarded), or_none(output->shardings)});
}

// (calls, target, [(number of a trace, its calls or None)]) of every key.
Ref programs_of(const CallCache& cache) {
  std::vector<Ref> all;
  for (const ProgramPtr& program : cache.table.all()) {
    std::vector<Ref> log;
    for (const ProgramTrace& trace : std::vector<ProgramTrace>(program->log)) {
      log.push_back(tuple_of({number(trace.number), trace.calls ? number(*trace.calls) : or_none({})}));
    }
    all.push_back(tuple_of({number(program->calls), or_none(program->value), list_of(std::move(log))}));
  }
  return list_of(std::move(all));
}

// (static keys, traces, hits, misses, size limit, loads)
Ref info_of(const CallCache& cache) {
  return tuple_of_numbers(std::vector<std::size_t>{cache.table.size(), cache.traces, cache.hits, cache.misses,
                                                   cache.table.max_size(), cache.loads});
}

void register_cache(py::module_& module) {
  BoxedClass<CallCache>(module, "partax._core.CallCache", "What all wrappers of equal callables share.",
                        {{Py_tp_clear, reinterpret_cast<void*>(forget_programs)}})
      .def_property("history", [](const CallCache& cache) { return or_none(cache.history); })
      .def("begin_history",
           [](CallCache& cache, PyObject* history) {
             if (!cache.history) cache.history = Ref::borrow(history);  // else another thread was first
             return cache.history;
           })
      .def_property("difference", [](const CallCache& cache) { return exact_unicode(cache.difference); })
      .def_property("options", [](const CallCache& cache) { return cache.options; })
      .def("entries", &programs_of)
      .def("info", &info_of)
      .def("clear", [](CallCache& cache) {
        cache.table.clear();
        cache.traces = cache.hits = cache.misses = cache.loads = 0;
      });
  define(module, "caches", &living_caches, py::arg("callable") = py::none());
}

// The leaves that a program gives back after its other results, though the trace forwards them, in that order.
Ref leaves_through(PyObject* node) {
  std::vector<std::size_t> through;
  if (is_output_node(node)) {
    const auto output = output_of(node);
    const std::vector<std::int32_t>& sources = sources_of(node);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (output->source[i] < 0 && sources[i] >= 0) through.push_back(~static_cast<std::size_t>(output->source[i]));
    }
  }
  return tuple_of_numbers(through);
}

void register_output(py::module_& module) {
  register_trace_output_types(module.ptr());
  define(module, "_flatten_output", &flatten_output);
  define(module, "output_info", &output_info);
  define(module, "with_children",
         [](PyObject* node, PyObject* children) { return with_children(node, Ref::borrow(children)); });
  define(module, "leaves_through", &leaves_through);
  define(module, "with_leaves_through", [](PyObject* node, PyObject* children, PyObject* through) {
    return with_leaves_through(node, Ref::borrow(children), through);
  });
  define(module, "stored_result", &stored_result);
  define(module, "set_stored_result",
         [](PyObject* node, PyObject* stored) { set_stored_result(node, Ref::borrow(stored)); });
}

Program& program_of(const CallView& view) {
  if (Program* const program = view.call->program().get()) return *program;
  raise_error(PyExc_RuntimeError, "partax: the call has no program yet");
}

void register_arguments(BoxedClass<CallView>& view) {
  view.def_property("function", [](const CallView& view) { return Ref::borrow(view.call->jit().function); })
      .def_property("cache", [](const CallView& view) { return view.call->cache_object(); })
      .def_property("options", [](const CallView& view) { return view.call->cache().options; })
      .def_property("shape",
                    [](const CallView& view) { return call_shape(view.call->cache().parameters, view.call->bound()); })
      .def_property("values", [](const CallView& view) { return view.call->values(); })
      .def_property("leaves", [](const CallView& view) { return view.call->leaves().tuple(); })
      .def("describe",
           [](const CallView& view) {
             const Ref described = view.call->described();
             view.call->progress().described = Ref::borrow(PyTuple_GET_ITEM(described.get(), 0));
             return described;
           })
      .def_property("has_traced", [](const CallView& view) { return view.call->progress().traced; })
      .def_property("is_in_body", [](const CallView& view) { return view.call->progress().in_body; })
      .def_property("record", [](const CallView& view) { return or_none(view.call->progress().record); })
      .def("set_record",
           [](const CallView& view, PyObject* record) { view.call->progress().record = Ref::borrow(record); })
      .def("call", [](const CallView& view, PyObject* function, const py::tuple& values) {
        const BoundCall& bound = view.call->bound();
        if (values.size() != bound.size()) raise_error(PyExc_RuntimeError, "partax: the call has not so many values");
        return call_with(view.call->cache().parameters, bound, function, Items(values.ptr()).begin());
      });
}

void register_steps_of_miss(BoxedClass<CallView>& view) {
  view.def_property("program",
                    [](const CallView& view) {
                      return box(std::make_unique<ProgramView>(ProgramView{program_of(view).weak_from_this()}));
                    })
      .def_property("has_target", [](const CallView& view) { return static_cast<bool>(program_of(view).value); })
      .def_property("traced_function", [](const CallView& view) { return or_none(program_of(view).function); })
      .def("share_function",
           [=](const CallView& view, PyObject* function, PyObject* not_forwardable) {
             return share_function(program_of(view), Ref::borrow(function), not_forwardable);
           })
      .def_property(
          "forwarded",
          [](const CallView& view) { return tuple_of_numbers(std::vector<std::uint32_t>(program_of(view).forwarded)); })
      .def("set_target",
           [](const CallView& view, PyObject* target, PyObject* donated, bool takes_tuple, PyObject* stored_program) {
             set_target(*view.call, Ref::borrow(target), donated, takes_tuple,
                        Ref::borrow(null_if_none(stored_program)));
           })
      .def("wait_for_results", [](const CallView& view) { program_of(view).blocks = true; })
      // The stored programs that it may run.
      .def_property("stored", [](const CallView& view) { return or_none(view.call->progress().stored); })
      .def("set_stored",
           [](const CallView& view, PyObject* stored) { view.call->progress().stored = Ref::borrow(stored); })
      .def_property(
          "stores_result",
          [](const CallView& view) { return view.call->progress().stored || program_of(view).stored_program; })
      .def("count_load",
           [](const CallView& view) {
             view.call->progress().loaded = true;
             ++view.call->cache().loads;
           })
      // It and those after it run the target itself.
      .def("forget_program",
           [](const CallView& view) {
             Program& program = program_of(view);
             const Ref stored_program = std::move(program.stored_program), stored = std::move(program.stored);
           })
      .def("restore_output", [](const CallView& view, PyObject* result, const py::tuple& inputs) {
        return restore_output(*view.call, result, inputs.ptr());
      });
}

void register_call_view(py::module_& module) {
  BoxedClass<CallView> view(module, "partax._core.Call", "A call, for what it needs Python for.", {});
  register_arguments(view);
  register_steps_of_miss(view);
  BoxedClass<ProgramView>(module, "partax._core.Program", "The program of a static key.", {})
      .def_property("running_call", &running_call);
}

PyObject* new_trace(PyTypeObject*, PyObject* arguments, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject *program = nullptr, *tracers = nullptr;
    parse_tuple(arguments, "O!O!", Boxed<ProgramView>::type, &program, &PyTuple_Type, &tracers);
    const auto begin = [&] { return std::make_unique<Trace>(Boxed<ProgramView>::in(program), tracers); };
    return box_made<Trace>(begin).release();
  });
}

void register_trace(py::module_& module) {
  BoxedClass<Trace>(module, "partax._core.Trace", "A trace of a call's target that has begun.",
                    {{Py_tp_new, reinterpret_cast<void*>(new_trace)}})
      .def_property("call", &Trace::call)
      .def_property("described", &Trace::described)
      .def_property("values", &Trace::values)
      .def_property("first", &Trace::first)
      .def_property("is_full", &Trace::is_full)
      .def_property("epoch", &Trace::epoch)
      .def_property("difference", &Trace::difference)
      .def("arguments", &Trace::arguments)
      .def("output", &Trace::output)
      .def("end", &Trace::end);
}

void register_prepared_call(py::module_& module) {
  BoxedClass<PreparedCall>(module, "partax._core.PreparedCall", "A call that is run step by step.",
                           {{Py_tp_new, reinterpret_cast<void*>(new_prepared_call)}})
      .def_property("record", &PreparedCall::record)
      .def_property("stored", &PreparedCall::stored)
      .def_property("objects", &PreparedCall::objects)
      .def_property("leaves", &PreparedCall::leaves)
      .def("run", &PreparedCall::run)
      .def("result", &PreparedCall::result)
      .def("rebind", &PreparedCall::rebind)
      .def("detach", &PreparedCall::detach)
      .def("compiled", &make_compiled_call)
      .def("described", &PreparedCall::described)
      .def("described_of", &PreparedCall::described_of);
}

}  // namespace

void register_call(py::module_& module) {
  register_cache(module);
  register_jit_function_types(module.ptr());
  define(module, "make_jit_function", &make_jit_function);
  define(module, "_flatten_jit", &flatten_jit);
  define(module, "_unflatten_jit", &unflatten_jit);
  register_bound_function_type(module.ptr());
  define(module, "make_bound_function", &make_bound_function);
  register_output(module);
  register_call_view(module);
  register_trace(module);
  define(module, "set_variable_slot", &set_variable_slot);
  register_prepared_call(module);
}

}  // namespace partax
