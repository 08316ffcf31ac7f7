#include "partition/class_test.h"

#include "base/error_path.h"
#include "base/hooks.h"
#include "classes/type_table.h"

namespace partax {
namespace {

PyObject* instance_check_name() {
  static Name name("__instancecheck__");
  return name.get();
}
PyObject* subclass_check_name() {
  static Name name("__subclasscheck__");
  return name.get();
}

// What abc defines: (ABCMeta.__instancecheck__, ABCMeta.__subclasscheck__, get_cache_token), or an empty tuple.
PyObject* abc_functions() {
  static auto* const functions = new Ref();  // never destroyed: the interpreter may be gone by then
  if (!*functions) *functions = call_python("partax._families.class_answers", "abc_functions");
  return functions->get();
}

// Whether `cls` answers as its abc.ABCMeta does, which keeps what it has said of a type.
bool is_plainly_abstract(PyObject* cls) {
  PyObject* functions = abc_functions();
  return PyTuple_GET_SIZE(functions) == 3 &&
         on_type(Py_TYPE(cls), instance_check_name()) == PyTuple_GET_ITEM(functions, 0) &&
         on_type(Py_TYPE(cls), subclass_check_name()) == PyTuple_GET_ITEM(functions, 1) &&
         on_type(reinterpret_cast<PyTypeObject*>(cls), subclass_check_name()) == nullptr;
}

}  // namespace

ClassTest::ClassTest(PyObject* asked) : asked_(Ref::borrow(asked)) {
  if (!PyType_Check(asked)) return;
  if (asked == hooks().jax_array.get()) {
    how_ = How::kJaxArray;
  } else if (on_type(Py_TYPE(asked), instance_check_name()) == on_type(&PyType_Type, instance_check_name())) {
    how_ = How::kPlain;
  } else if (is_plainly_abstract(asked)) {
    how_ = How::kAbc;
  }
}

bool ClassTest::holds(PyObject* object, Reach& reach) const {
  PyTypeObject* type = Py_TYPE(object);
  if (how_ == How::kPlain && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(asked_.get())) != 0) return true;
  bool by_type = how_ != How::kAsk && tells_its_class(type);
  if (how_ == How::kPlain && by_type) return false;
  if (how_ == How::kJaxArray && by_type) {
    const LeafSort sort = TypeTable::instance().find(object).sort;
    if (sort != LeafSort::kTracer) return sort == LeafSort::kJaxArray;
    by_type = false;
  }
  if (!by_type) limit(reach, Reach::kObject);
  const int answer = PyObject_IsInstance(object, asked_.get());
  if (answer < 0) throw WalkError::from_user_code("asking isinstance about");
  return answer == 1;
}

std::uint64_t abc_token() {
  PyObject* functions = abc_functions();
  const Ref token = Ref::checked(PyObject_CallNoArgs(PyTuple_GET_ITEM(functions, 2)));
  const std::uint64_t value = PyLong_AsUnsignedLongLong(token.get());
  if (value == static_cast<std::uint64_t>(-1) && PyErr_Occurred() != nullptr) throw PythonError{};
  return value;
}

}  // namespace partax
