#include "base/binding.h"
#include "dispatch/bound_function.h"
#include "dispatch/miss.h"
#include "dispatch/output.h"
#include "dispatch/prepared_call.h"

namespace py = pybind11;

namespace partax {
namespace {

// Of what a target has returned: the forwarded leaves; the shardings, or None; and the leaves that the program gives
// back after its other results, though the trace forwards them, in that order.
Ref output_info(PyObject* node) {
  std::vector<std::size_t> forwarded, through;
  if (!is_output_node(node)) return tuple_of({tuple_of_numbers(forwarded), or_none({}), tuple_of_numbers(through)});
  const auto output = output_of(node);
  const std::vector<std::int32_t>& sources = sources_of(node);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (output->source[i] >= 0) continue;
    (sources[i] < 0 ? forwarded : through).push_back(~static_cast<std::size_t>(output->source[i]));
  }
  return tuple_of({tuple_of_numbers(forwarded), or_none(output->shardings), tuple_of_numbers(through)});
}

std::unique_ptr<ProgramView> view_of(const ProgramPtr& program) {
  return std::make_unique<ProgramView>(ProgramView{program});
}

Ref programs_of(const CallCache& cache) {
  std::vector<Ref> programs;
  for (const ProgramPtr& program : cache.table.all()) programs.push_back(box(view_of(program)));
  return list_of(std::move(programs));
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
      .def("programs", &programs_of)
      .def_property("counts",
                    [](const CallCache& cache) {
                      const auto& [traces, hits, misses, loads] = cache.counts;
                      return tuple_of_numbers(
                          std::vector{cache.table.size(), traces, hits, misses, cache.table.max_size(), loads});
                    })
      .def("clear", [](CallCache& cache) {
        cache.table.clear();
        cache.counts = {};
      });
  define(module, "caches", &living_caches, py::arg("callable") = py::none());
}

void register_output(py::module_& module) {
  register_trace_output_types(module.ptr());
  define(module, "_flatten_output", &flatten_output);
  define(module, "output_info", &output_info);
  define(module, "with_children",
         [](PyObject* node, PyObject* children) { return with_children(node, Ref::borrow(children)); });
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
      .def("describe", [](const CallView& view) { return view.call->described(); })
      .def_property("has_traced", [](const CallView& view) { return view.call->progress().traced; })
      .def_property("is_in_body", [](const CallView& view) { return view.call->progress().in_body; })
      .def_property("record", [](const CallView& view) { return or_none(view.call->progress().record); })
      .def("set_record",
           [](const CallView& view, PyObject* record) { view.call->progress().record = Ref::borrow(record); });
}

void register_steps_of_miss(BoxedClass<CallView>& view) {
  view.def_property("program", [](const CallView& view) { return box(view_of(program_of(view).shared_from_this())); })
      .def_property("has_target",
                    [](const CallView& view) { return static_cast<bool>(program_of(view).target.jitted); })
      .def_property("traced_function", [](const CallView& view) { return or_none(program_of(view).target.function); })
      .def("share_function", [](const CallView& view,
                                PyObject* function) { return share_function(program_of(view), Ref::borrow(function)); })
      .def_property("forwarded",
                    [](const CallView& view) {
                      return tuple_of_numbers(std::vector<std::uint32_t>(program_of(view).leaves.forwarded));
                    })
      .def("set_target", [](const CallView& view, PyObject* jitted,
                            PyObject* donated) { set_target(*view.call, Ref::borrow(jitted), donated); })
      .def("wait_for_results", [](const CallView& view) { program_of(view).target.waits = true; })
      // The stored programs that it may run.
      .def("set_stored",
           [](const CallView& view, PyObject* stored) { view.call->progress().stored = Ref::borrow(stored); })
      .def_property("stores_result",
                    [](const CallView& view) { return view.call->progress().stored || program_of(view).target.stored; })
      .def("count_load",
           [](const CallView& view) {
             view.call->progress().loaded = true;
             ++view.call->cache().counts.loads;
           })
      // It and those after it run the jax.jit itself.
      .def("forget_program",
           [](const CallView& view) {
             Target& target = program_of(view).target;
             const Ref callable = std::exchange(target.callable, target.jitted), stored = std::move(target.stored);
           })
      .def("restore_output", [](const CallView& view, PyObject* result, const py::tuple& inputs) {
        return restore_output(*view.call, result, inputs.ptr());
      });
}

// (number, calls or None) of each trace. The only one of a program has all its calls.
Ref traces_of(const ProgramView& view) {
  std::vector<Ref> traces;
  const ProgramPtr program = view.program.lock();
  for (const ProgramTrace& trace : program ? program->traces : std::vector<ProgramTrace>()) {
    const std::size_t* rest = program->traces.size() == 1 ? &program->calls : nullptr;
    const std::size_t* calls = trace.calls ? trace.calls.get() : rest;
    traces.push_back(tuple_of({number(trace.number), calls ? number(*calls) : or_none({})}));
  }
  return list_of(std::move(traces));
}

Ref begin_trace(const ProgramView& view, PyObject* tracers) {
  return box_made<Trace>([&] { return std::make_unique<Trace>(view, tracers); });
}

void register_program(py::module_& module) {
  BoxedClass<CallView> view(module, "partax._core.Call", "A call, for what it needs Python for.", {});
  register_arguments(view);
  register_steps_of_miss(view);
  BoxedClass<ProgramView>(module, "partax._core.Program", "The program of a static key.", {})
      .def_property("running_call", &running_call)
      .def("begin_trace", &begin_trace)
      .def_property("target",
                    [](const ProgramView& view) {
                      const ProgramPtr program = view.program.lock();
                      return or_none(program ? program->target.jitted : Ref());
                    })
      .def_property("traces", &traces_of);
  BoxedClass<Trace>(module, "partax._core.Trace", "A trace of a call's target that has begun.", {})
      .def_property("call", &Trace::call)
      .def_property("key_state", &Trace::key_state)
      .def("arguments", &Trace::arguments)
      .def("output", &Trace::output)
      .def("end", &Trace::end);
}

Ref prepare_call(PyObject* jit, PyObject* args, PyObject* kwargs, bool abstract) {
  check_is_wrapper(jit);
  return box_made<PreparedCall>([&] { return std::make_unique<PreparedCall>(jit, args, kwargs, abstract); });
}

void register_prepared_call(py::module_& module) {
  define(module, "prepare_call", &prepare_call);
  BoxedClass<PreparedCall>(module, "partax._core.PreparedCall", "A call that is run step by step.", {})
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
  register_program(module);
  register_prepared_call(module);
}

}  // namespace partax
