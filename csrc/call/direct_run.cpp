#include <algorithm>

#include "base/python_hooks.h"
#include "call/bound_programs.h"
#include "call/output.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// Most often of the very same items.
bool are_equal_tuples(PyObject* left, PyObject* right) {
  const Items left_items(left), right_items(right);
  return std::equal(left_items.begin(), left_items.end(), right_items.begin(), right_items.end()) ||
         are_equal(left, right);
}

bool is_array(PyObject* object) { return hooks().jax_array_type.is(Py_TYPE(object)); }

// The value of a property of jax's, in half the time of reading the attribute.
Ref read(const Ref& property, PyObject* object) {
  return Ref::checked(PyObject_Vectorcall(property.get(), &object, 1, nullptr));
}

}  // namespace

DirectRun::Signature DirectRun::signature(PyObject* array) const {
  Signature values;
  for (std::size_t i = 0; i < kLayout; ++i) values[i] = read(properties_[i], array);
  if (values[kCommitted].get() == Py_True) values[kLayout] = read(properties_[kLayout], array);
  return values;
}

bool DirectRun::has_signature(PyObject* array, Signature& last_signature) const {
  if (!is_array(array)) return false;
  for (std::size_t i = 0; i < kNumProperties && last_signature[i]; ++i) {
    Ref now = read(properties_[i], array);
    if (last_signature[i].get() == now.get()) continue;
    const Ref compared = last_signature[i];  // another thread may take its place meanwhile
    if (!are_equal(now.get(), compared.get())) return false;
    last_signature[i].swap(now);  // it is known by identity from then on: arrays of one program have it in common
  }
  return true;
}

std::shared_ptr<DirectRun> DirectRun::make(const Program& program, const LeafBuffer& leaves,
                                           const std::vector<std::uint32_t>& free, std::size_t num_changing,
                                           const Ref& returned) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!is_array(leaves[i])) return {};
  }
  const Ref target = program.value;
  const Ref plan = python::direct_run(target, or_none(program.stored), truth(program.takes_tuple), leaves.tuple(),
                                      tuple_of_numbers(free));
  if (plan.get() == Py_None) return {};
  auto run = std::make_shared<DirectRun>();
  const Ref properties = attribute(plan.get(), "properties"), settings = attribute(plan.get(), "settings"),
            places = attribute(plan.get(), "places");
  run->num_changing_ = num_changing;
  std::size_t next = 0;
  for (PyObject* property : Items(properties.get())) run->properties_[next++] = Ref::borrow(property);
  for (const std::uint32_t i : free) run->free_.push_back(run->signature(leaves[i]));
  for (PyObject* place : Items(places.get())) run->places_.push_back(PyLong_AsSsize_t(place));
  for (PyObject* setting : Items(settings.get())) {
    PyObject *property, *object;
    parse_tuple(setting, "OO", &property, &object);
    run->settings_.push_back({Ref::borrow(property), Ref::borrow(object), read(Ref::borrow(property), object)});
  }
  run->read_context_ = attribute(plan.get(), "read_context");
  run->context_ = attribute(plan.get(), "context");
  run->execute_ = attribute(plan.get(), "execute");
  run->handlers_ = attribute(plan.get(), "handlers");
  run->arguments_ = attribute(plan.get(), "arguments");
  run->node_ = is_output_node(returned.get()) ? returned : Ref();
  const Ref results = run->node_ ? results_of(returned.get()) : tuple_of({returned});
  for (PyObject* result : Items(results.get())) {
    if (!is_array(result)) return {};
    run->expected_.push_back(run->signature(result));
  }
  return run;
}

bool DirectRun::is_for(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free) {
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (has_in_list(arguments_.get(), i, leaves[free[i]])) continue;
    if (!has_signature(leaves[free[i]], free_[i])) return false;
  }
  for (const Setting& setting : settings_) {
    if (read(setting.property, setting.object.get()).get() != setting.value.get()) return false;
  }
  return are_equal_tuples(Ref::checked(PyObject_CallNoArgs(read_context_.get())).get(), context_.get());
}

bool DirectRun::are_expected(const Ref& arrays) {
  if (expected_.empty()) return true;
  std::vector<Signature> expected;
  expected.swap(expected_);
  if (PyTuple_GET_SIZE(arrays.get()) != static_cast<Py_ssize_t>(expected.size())) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!has_signature(PyTuple_GET_ITEM(arrays.get(), static_cast<Py_ssize_t>(i)), expected[i])) return false;
  }
  return true;
}

Ref DirectRun::run(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free) {
  static Name consume("consume_with_handlers");
  Ref list = std::move(arguments_);
  if (!list || is_unusable_) return {};  // another thread runs it
  struct ListRestorer {
    DirectRun& run;
    Ref& list;
    ~ListRestorer() {
      for (std::size_t i = 0; i < run.num_changing_; ++i) {
        if (run.places_[i] >= 0) PyList_SetItem(list.get(), run.places_[i], Py_NewRef(Py_None));
      }
      run.arguments_ = std::move(list);
    }
  } const restorer{*this, list};
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (places_[i] < 0 || has_in_list(list.get(), i, leaves[free[i]])) continue;
    PyList_SetItem(list.get(), places_[i], Py_NewRef(leaves[free[i]]));
  }
  Ref arrays = [&] {
    const Away away;
    const Ref outputs = Ref::checked(PyObject_CallOneArg(execute_.get(), list.get()));
    const Ref results = Ref::checked(PyObject_CallMethodOneArg(outputs.get(), consume.get(), handlers_.get()));
    return Ref::checked(PySequence_Tuple(results.get()));
  }();
  is_unusable_ = !are_expected(arrays);
  if (is_unusable_) return {};
  return node_ ? with_children(node_.get(), std::move(arrays)) : Ref::borrow(PyTuple_GET_ITEM(arrays.get(), 0));
}

}  // namespace partax
