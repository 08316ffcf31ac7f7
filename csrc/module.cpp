// Registration only: what partax._core exposes.
#include <algorithm>

#include "base/boxed_class.h"
#include "base/predicates.h"
#include "base/python_api.h"
#include "cache/call_cache.h"
#include "cache/trace_output.h"
#include "call/compiled_call.h"
#include "call/jit_function.h"
#include "call/prepared_call.h"
#include "call/trace.h"
#include "call/trace_record.h"
#include "partition/partition.h"
#include "partition/static_node.h"
#include "tree/described.h"
#include "tree/flatten.h"
#include "tree/match.h"
#include "tree/stage_objects.h"

namespace py = pybind11;

namespace partax {
namespace {

PyObject* optional(const py::object& object) { return object.is_none() ? nullptr : object.ptr(); }

const char* node_kind(const py::object& object) {
  TypeTable::instance().epoch();
  const TypeInfo& info = TypeTable::instance().find(object.ptr());
  if (info.kind != Kind::kStaticLeaf) return kind_name(info.kind);
  return kind_name(is_dynamic_sort(info.sort, false) ? Kind::kDynamicLeaf : Kind::kStaticLeaf);
}

void configure(const py::kwargs& given) {
  const std::pair<const char*, Ref Hooks::*> slots[] = {
      {"default_dict", &Hooks::default_dict},
      {"registry", &Hooks::registry},
      {"jax_array", &Hooks::jax_array},
      {"jax_array_type", &Hooks::jax_array_type},
      {"treedef_type", &Hooks::treedef_type},
      {"missing", &Hooks::missing},
      {"wrapper_names", &Hooks::wrapper_names},
      {"registered", &Hooks::registered},
      {"filter", &Hooks::filter},
      {"partial_type", &Hooks::partial_type},
      {"jitted_type", &Hooks::jitted_type},
      {"wrapper_type", &Hooks::wrapper_type},
  };
  for (const auto& [key, value] : given) {
    const auto name = py::cast<std::string>(key);
    const auto* const slot =
        std::find_if(std::begin(slots), std::end(slots), [&](const auto& known) { return name == known.first; });
    if (slot == std::end(slots)) throw py::value_error("unknown hook " + name);
    hooks().*slot->second = Ref::borrow(value.ptr());
  }
}

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

}  // namespace

template <>
struct IsBoxed<PreparedCall> : std::true_type {};

// Without `mod_gil_not_used`: every table here relies on the GIL.
PYBIND11_MODULE(_core, module, py::multiple_interpreters::not_supported()) {
  module.doc() = "The native stages of partax.";
  translate_exceptions();
  intern_partial_names();

  BoxedClass<Spec>(module, "partax._core.TreeSpec", "The static part of a tree.", nullptr)
      .def_property("num_dynamic", [](const Spec& spec) { return number(spec.loose.num_dynamic); })
      .def(
          "dynamic_paths",
          [](const Spec& spec) {
            return give(call_python("partax._tree.described", "leaf_paths", described(spec.loose, root_of(spec.root))));
          })
      .def("match", &match, py::arg("tree"))
      .def("rebuild", &rebuild_tree, py::arg("leaves"))
      .def("__hash__", [](const Spec& spec) { return number(spec.loose.hash); })
      .def(
          "__eq__",
          [](const Spec& spec, const Spec& other) {
            try {
              return spec.sealed.equals(other.loose);
            } catch (const WalkError& error) {
              raise_at_static(error, other.loose, root_of(other.root));
            }
          },
          py::is_operator());
  module.def("flatten", &flatten, "The dynamic leaves of a tree, and its static part.", py::arg("tree"),
             py::arg("root") = "tree");
  module.def(
      "static_equal",
      [](const py::object& a, const py::object& b) {
        return with_path("value",
                         [&] { return StaticValue::loose(Ref::borrow(a.ptr())).sealed(nullptr).equals(b.ptr()); });
      },
      py::arg("a"), py::arg("b"));
  module.def(
      "static_hash",
      [](const py::object& value) {
        return with_path("value", [&] { return number(static_hash(value.ptr(), Unhashable::kRefuse)); });
      },
      py::arg("value"));
  module.def(
      "parts_of",
      [](const py::object& value, int parts, const py::object& argument, const py::object& absent) {
        return give(Readings::parts_of(value.ptr(), static_cast<Readings::Parts>(parts), argument.ptr(), absent.ptr()));
      },
      "What is read next of a value: see readings.h.", py::arg("value"), py::arg("parts"), py::arg("argument"),
      py::arg("absent"));
  module.def(
      "items_of",
      [](const py::object& value, const py::object& absent) {
        std::vector<Ref> items;
        each_inner(value.ptr(), [&](const Ref& item) { items.push_back(item ? item : Ref::borrow(absent.ptr())); });
        return give(tuple_of(std::move(items)));
      },
      "What a static value consists of.", py::arg("value"), py::arg("absent"));
  module.def(
      "unproven",
      [](const py::object& callable) {
        return py::str(with_path("callable", [&] { return Readings::of(callable.ptr(), false)->unproven(); }));
      },
      "What of all that a callable reads nobody can prove unchanged; empty if there is nothing.", py::arg("callable"));
  module.def(
      "difference",
      [](const py::object& before, const py::object& now) {
        return py::str(with_path("callable", [&] {
          return StaticValue::loose(Ref::borrow(before.ptr())).sealed(nullptr).difference(now.ptr());
        }));
      },
      "What makes a callable another one than one made before; empty if nothing does.", py::arg("before"),
      py::arg("now"));
  module.def("node_kind", &node_kind, "The family of a node, or the sort of a leaf.", py::arg("object"));

  module.def(
      "partition",
      [](const py::object& tree, const py::tuple& filters, const py::object& replace, const py::object& is_leaf) {
        const Partition parts = partition(tree.ptr(), filters.ptr(), replace.ptr(), optional(is_leaf));
        py::list counts;
        for (const std::size_t count : parts.counts) counts.append(number(count));
        return py::make_tuple(give(parts.trees), counts);
      },
      py::arg("tree"), py::arg("filters"), py::arg("replace"), py::arg("is_leaf"));
  module.def(
      "filter",
      [](const py::object& tree, const py::object& filter_spec, bool inverse, const py::object& replace,
         const py::object& is_leaf) {
        return give(filter(tree.ptr(), filter_spec.ptr(), inverse, replace.ptr(), optional(is_leaf)));
      },
      py::arg("tree"), py::arg("filter_spec"), py::arg("inverse"), py::arg("replace"), py::arg("is_leaf"));
  module.def(
      "combine",
      [](const py::tuple& trees, const py::object& is_leaf) { return give(combine(trees.ptr(), optional(is_leaf))); },
      py::arg("trees"), py::arg("is_leaf"));
  module.def(
      "broadcast_prefix",
      [](const py::object& prefix, const py::object& tree, const py::object& is_prefix_leaf, const py::str& prefix_name,
         const py::str& tree_name) {
        return give(broadcast_prefix(prefix.ptr(), tree.ptr(), is_prefix_leaf.ptr(),
                                     exact_text(prefix_name.ptr()).c_str(), exact_text(tree_name.ptr()).c_str()));
      },
      py::arg("prefix"), py::arg("tree"), py::arg("is_prefix_leaf"), py::arg("prefix_name"), py::arg("tree_name"));

  const py::object static_nodes = give(register_static_node_types());
  module.attr("FlatSpec") = static_nodes[py::int_(0)];
  module.attr("Static") = static_nodes[py::int_(1)];
  module.def(
      "flat_partition",
      [](const py::object& tree, const py::tuple& filters, const py::object& separator, bool rest_is_static,
         const py::object& is_leaf) {
        return give(flat_partition(tree.ptr(), filters.ptr(), optional(separator), rest_is_static, optional(is_leaf)));
      },
      py::arg("tree"), py::arg("filters"), py::arg("separator"), py::arg("rest_is_static"), py::arg("is_leaf"));
  module.def(
      "flat_combine",
      [](const py::object& spec, const py::tuple& dicts) { return give(flat_combine(spec.ptr(), dicts.ptr())); },
      py::arg("spec"), py::arg("dicts"));

  const py::object predicates = give(predicate_functions());
  const char* predicate_names[] = {"is_array", "is_array_like", "is_inexact_array", "is_inexact_array_like"};
  for (std::size_t i = 0; i < 4; ++i) module.attr(predicate_names[i]) = predicates[py::int_(i)];

  const py::object jit = give(register_jit_function_types());
  module.attr("JitFunction") = jit[py::int_(0)];
  module.attr("_flatten_jit") = jit[py::int_(1)];
  module.attr("_unflatten_jit") = jit[py::int_(2)];
  module.attr("CallCache") = give(register_cache_type());
  const py::object output = give(register_trace_output_types());
  module.attr("TraceOutput") = output[py::int_(0)];
  module.attr("OutputNode") = output[py::int_(1)];
  module.attr("_flatten_output") = output[py::int_(2)];
  module.attr("_unflatten_output") = output[py::int_(3)];
  module.attr("trace") = give(Ref::checked(PyCFunction_New(&trace_method, nullptr)));
  module.def(
      "make_jit_function",
      [](const py::object& function, const py::object& options) {
        return give(make_jit_function(function.ptr(), options.ptr()));
      },
      py::arg("function"), py::arg("options"));
  module.def(
      "on_call_exit", [](const py::object& callback) { return on_call_exit(callback.ptr()); }, py::arg("callback"));
  module.def(
      "call_under_way", [] { return give(call_under_way()); },
      "(history, record) of the call whose target jax works on now in this thread, or None.");
  module.def(
      "call_shape",
      [] {
        const CallFrame* frame = CallFrame::innermost();
        if (frame == nullptr) throw std::runtime_error("partax: no call is under way");
        return give(shape_data(frame->cache.parameters, frame->call.shape(), frame->call.has_callable()));
      },
      "Which values the call under way has.");
  module.def("set_record", [](const py::object& record) { set_record(record.ptr()); }, py::arg("record"));
  module.def(
      "describe_call", [] { return give(describe_call()); },
      "(parts, array leaves) of the call under way: all that its program may depend on.");
  module.def(
      "describe_tree",
      [](const py::object& tree, const py::str& root) {
        LeafBuffer leaves;
        const std::string name = exact_text(root.ptr());
        const TreeSpec spec = flatten_tree(tree.ptr(), name, leaves);
        return py::make_tuple(give(described(spec, root_of(name))), as_list(leaves));
      },
      "(parts, array leaves) of a tree.", py::arg("tree"), py::arg("root"));
  module.def("caches", [] { return give(all_caches()); }, "The caches of all callables that live.");
  module.def(
      "output_info",
      [](const py::object& node) {
        if (!is_output_node(node.ptr())) return py::tuple(py::make_tuple(py::list(), py::none()));
        const std::shared_ptr<const TraceOutput> output = output_of(node.ptr());
        py::list forwarded;
        for (const std::int32_t source : output->source) {
          if (source < 0) forwarded.append(number(~static_cast<std::size_t>(source)));
        }
        return py::tuple(py::make_tuple(
            forwarded, output->shardings ? py::reinterpret_borrow<py::object>(output->shardings.get()) : py::none()));
      },
      py::arg("node"));
  module.def(
      "with_children",
      [](const py::object& node, const py::tuple& children) {
        if (!is_output_node(node.ptr())) throw py::type_error("expected an output node");
        return give(with_children(node.ptr(), Ref::borrow(children.ptr())));
      },
      py::arg("node"), py::arg("children"));

  BoxedClass<PreparedCall>(module, "partax._core.PreparedCall", "A call that is run step by step.", new_prepared_call)
      .def_property("record", [](const PreparedCall& call) { return give(Ref::borrow(call.record())); })
      .def_property("leaves", [](const PreparedCall& call) { return give(Ref::borrow(call.leaves())); })
      .def(
          "run", [](const PreparedCall& call, const py::object& callable) { return give(call.run(callable.ptr())); },
          py::arg("callable"))
      .def(
          "result",
          [](const PreparedCall& call, const py::object& returned, const py::tuple& leaves) {
            return give(call.result(returned.ptr(), leaves.ptr()));
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
          [](const PreparedCall& call, const py::object& executable) { return give(call.compiled(executable.ptr())); },
          py::arg("executable"))
      .def("described", [](const PreparedCall& call) { return give(call.described()); })
      .def(
          "described_of",
          [](const PreparedCall& call, const py::tuple& args, const py::dict& kwargs) {
            return give(call.described_of(args.ptr(), kwargs.ptr()));
          },
          py::arg("args"), py::arg("kwargs"));

  module.def("configure", &configure, "Sets what the native stages need from Python and jax.");
}

}  // namespace partax
