// call/ runs a wrapped callable, and keeps what it was compiled to.
// In: the arguments of a call. Out: the result of its compiled program, rebuilt; or the error, explained.
#include "base/binding.h"
#include "call/bound_programs.h"
#include "call/output.h"
#include "call/prepared_call.h"
#include "call/trace.h"

namespace py = pybind11;

namespace partax {
namespace {

PyObject* new_prepared_call(PyTypeObject*, PyObject* given, PyObject*) noexcept {
  return guarded<PyObject*>(nullptr, [&] {
    PyObject *jit = nullptr, *args = nullptr, *kwargs = nullptr;
    int abstract = 0;
    parse_tuple(given, "OO!O!p", &jit, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &abstract);
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
Ref entries_of(const CallCache& cache) {
  std::vector<Ref> all;
  for (const EntryPtr& entry : cache.table.all()) {
    std::vector<Ref> log;
    for (const EntryTrace& trace : std::vector<EntryTrace>(entry->log)) {
      log.push_back(tuple_of({number(trace.number), trace.calls ? number(*trace.calls) : or_none({})}));
    }
    all.push_back(tuple_of({number(entry->calls), or_none(entry->value), list_of(std::move(log))}));
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
                        {{Py_tp_clear, reinterpret_cast<void*>(forget_entries)}})
      .def_property("history", [](const CallCache& cache) { return or_none(cache.history); })
      .def_property("options", [](const CallCache& cache) { return cache.options; })
      .def("entries", &entries_of)
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
}

// What Python asks while a call is under way, of the innermost, and tells it.
void register_call_under_way(py::module_& module) {
  define(module, "trace", [](const py::args& leaves) { return run_trace(Items(leaves.ptr()).begin(), leaves.size()); });
  define(module, "restore_output", &restore_output);
  define(module, "call_body",
         [](PyObject* callable, const py::tuple& values) { return call_body(callable, values.ptr()); });
  // Which values it has: see shape_data.
  define(module, "call_shape", [] {
    const Call& call = CallFrame::under_way().call;
    return shape_data(call.cache().parameters, call.bound());
  });
  define(module, "describe_call", [] { return CallFrame::under_way().call.described(); });
  // Its wrapped callable, or None.
  define(module, "called_function", [] {
    const CallFrame* frame = CallFrame::innermost();
    return Ref::borrow(frame == nullptr ? Py_None : frame->call.jit().function);
  });
  // (history, record) if jax works for its target, else None. The record is None where this call has not traced.
  define(module, "call_under_way", [] {
    const CallFrame* frame = CallFrame::innermost();
    if (frame == nullptr || frame->entry == nullptr || frame->in_user_code) return Ref::borrow(Py_None);
    return tuple_of({or_none(frame->call.cache().history), or_none(frame->record)});
  });
  // Whether it has asked for stored programs, and whether it has traced.
  define(module, "call_progress", [] {
    const CallFrame* frame = CallFrame::innermost();
    return py::make_tuple(frame != nullptr && frame->is_stored, frame != nullptr && frame->traced);
  });
  // What it, which has not traced, is compiled for.
  define(module, "set_record", [](PyObject* record) {
    if (CallFrame* frame = CallFrame::innermost()) frame->record = Ref::borrow(record);
  });
  // Counts that it has a stored program; gives the history of its callable.
  define(module, "note_load", [] {
    CallFrame& frame = CallFrame::under_way();
    frame.loaded = true;
    ++frame.call.cache().loads;
    return frame.call.history();
  });
  // It and those after it run the target itself.
  define(module, "forget_program", [] {
    const CallFrame* frame = CallFrame::innermost();
    if (frame == nullptr || frame->entry == nullptr) return;
    const Ref program = std::move(frame->entry->program), stored = std::move(frame->entry->stored);
  });
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
  register_call_under_way(module);
  define(module, "store_programs", [](bool stored) { programs_are_stored = stored; });
  define(module, "set_variable_slots", &set_variable_slots);
  define(module, "set_static_cache", &set_static_cache);
  register_prepared_call(module);
}

}  // namespace partax
