#include "call/direct_run.h"

#include <algorithm>

#include "base/python_hooks.h"
#include "call/user_result.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// Most often of the very same items.
bool are_equal_tuples(PyObject* left, PyObject* right) {
  const auto* items = reinterpret_cast<PyTupleObject*>(left)->ob_item;
  const auto* others = reinterpret_cast<PyTupleObject*>(right)->ob_item;
  const Py_ssize_t size = PyTuple_GET_SIZE(left);
  return (PyTuple_GET_SIZE(right) == size && std::equal(items, items + size, others)) || are_equal(left, right);
}

bool is_array(PyObject* object) { return hooks().jax_array_type.is(Py_TYPE(object)); }

// What reading a property of jax's as an attribute gives, in half the time.
Ref read(const Ref& property, PyObject* of) {
  return Ref::checked(PyObject_Vectorcall(property.get(), &of, 1, nullptr));
}

}  // namespace

DirectRun::Signature DirectRun::signature(PyObject* array) const {
  Signature values;
  for (std::size_t i = 0; i < kLayout; ++i) values[i] = read(properties_[i], array);
  if (values[kCommitted].get() == Py_True) values[kLayout] = read(properties_[kLayout], array);
  return values;
}

bool DirectRun::is_of(Signature& known, PyObject* array) const {
  if (!is_array(array)) return false;
  for (std::size_t i = 0; i < kNumProperties && known[i]; ++i) {
    Ref now = read(properties_[i], array);
    if (known[i].get() == now.get()) continue;
    const Ref compared = known[i];  // another thread may take its place meanwhile
    if (!are_equal(now.get(), compared.get())) return false;
    known[i].swap(now);  // it is known by identity from then on: arrays of one program have it in common
  }
  return true;
}

std::shared_ptr<DirectRun> DirectRun::make(const Entry& entry, const LeafBuffer& leaves,
                                           const std::vector<std::uint32_t>& free, const Ref& returned) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!is_array(leaves[i])) return {};
  }
  std::vector<Ref> which;
  which.reserve(free.size());
  for (const std::uint32_t i : free) which.push_back(Ref::checked(PyLong_FromUnsignedLong(i)));
  const Ref target = entry.value, stored = entry.stored ? entry.stored : Ref::borrow(Py_None);
  const Ref found = python::direct_run(target, stored, entry.takes_tuple ? Py_True : Py_False, leaves.tuple(),
                                       tuple_of(std::move(which)));
  if (found.get() == Py_None) return {};
  const auto item = [](PyObject* tuple, std::size_t i) {
    return Ref::borrow(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
  };
  auto made = std::make_shared<DirectRun>();
  const Ref properties = item(found.get(), 0), settings = item(found.get(), 2), places = item(found.get(), 6);
  for (std::size_t i = 0; i < kNumProperties; ++i) made->properties_[i] = item(properties.get(), i);
  for (const std::uint32_t i : free) made->free_.push_back(made->signature(leaves[i]));
  for (PyObject* place : Items(places.get())) made->places_.push_back(PyLong_AsSsize_t(place));
  made->context_ = item(found.get(), 1);
  for (PyObject* setting : Items(settings.get())) {
    const Ref property = item(setting, 0), of = item(setting, 1);
    made->settings_.push_back({property, of, read(property, of.get())});
  }
  made->execute_ = item(found.get(), 3);
  made->handlers_ = item(found.get(), 4);
  made->arguments_ = item(found.get(), 5);
  made->node_ = is_output_node(returned.get()) ? returned : Ref::borrow(Py_None);
  const Ref results =
      made->node_.get() == Py_None ? Ref::checked(PyTuple_Pack(1, returned.get())) : results_of(returned.get());
  for (PyObject* result : Items(results.get())) {
    if (!is_array(result)) return {};
    made->expected_.push_back(made->signature(result));
  }
  return made;
}

bool DirectRun::is_for(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free) {
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (!is_of(free_[i], leaves[free[i]])) return false;
  }
  for (const Setting& it : settings_) {
    if (read(it.property, it.of.get()).get() != it.value.get()) return false;
  }
  return are_equal_tuples(python::trace_context().get(), context_.get());
}

bool DirectRun::are_expected(const Ref& arrays) {
  if (expected_.empty()) return true;
  std::vector<Signature> expected;
  expected.swap(expected_);
  if (PyTuple_GET_SIZE(arrays.get()) != static_cast<Py_ssize_t>(expected.size())) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!is_of(expected[i], PyTuple_GET_ITEM(arrays.get(), static_cast<Py_ssize_t>(i)))) return false;
  }
  return true;
}

Ref DirectRun::run(const LeafBuffer& leaves, const std::vector<std::uint32_t>& free) {
  static Name consume("consume_with_handlers");
  Ref list = std::move(arguments_);
  if (!list || is_other_) return {};  // another thread runs it
  struct Emptied {
    DirectRun& of;
    Ref& list;
    ~Emptied() {
      for (const Py_ssize_t place : of.places_) {
        if (place >= 0) PyList_SetItem(list.get(), place, Py_NewRef(Py_None));
      }
      of.arguments_ = std::move(list);
    }
  } const emptied{*this, list};
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (places_[i] >= 0) PyList_SetItem(list.get(), places_[i], Py_NewRef(leaves[free[i]]));
  }
  Ref arrays = [&] {
    const Away away;
    const Ref given = Ref::checked(PyObject_CallOneArg(execute_.get(), list.get()));
    const Ref results = Ref::checked(PyObject_CallMethodOneArg(given.get(), consume.get(), handlers_.get()));
    return Ref::checked(PySequence_Tuple(results.get()));
  }();
  is_other_ = !are_expected(arrays);
  if (is_other_) return {};
  if (node_.get() == Py_None) return Ref::borrow(PyTuple_GET_ITEM(arrays.get(), 0));
  return with_children(node_.get(), std::move(arrays));
}

int DirectRun::traverse(visitproc visit, void* arg) const {
  for (const auto* some : {&free_, &expected_}) {
    for (const Signature& it : *some) {
      for (const Ref& value : it) Py_VISIT(value.get());
    }
  }
  for (const Ref& it : properties_) Py_VISIT(it.get());
  for (const Setting& it : settings_) {
    for (const Ref* part : {&it.property, &it.of, &it.value}) Py_VISIT(part->get());
  }
  for (const Ref* it : {&context_, &execute_, &handlers_, &arguments_, &node_}) Py_VISIT(it->get());
  return 0;
}

}  // namespace partax
