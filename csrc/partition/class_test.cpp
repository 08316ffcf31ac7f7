#include "partition/class_test.h"

#include "base/error_path.h"
#include "base/hooks.h"
#include "classes/type_table.h"

namespace partax {

ClassTest::ClassTest(PyObject* asked) : asked_(Ref::borrow(asked)) {
  static Name name("__instancecheck__");
  if (!PyType_Check(asked)) return;
  if (asked == hooks().jax_array.get()) {
    how_ = How::kJaxArray;
  } else if (on_type(Py_TYPE(asked), name.get()).get() == on_type(&PyType_Type, name.get()).get()) {
    how_ = How::kPlain;
  }
}

bool ClassTest::holds(PyObject* object, Reach& reach) const {
  PyTypeObject* type = Py_TYPE(object);
  if (how_ == How::kPlain && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(asked_.get())) != 0) return true;
  const bool by_type = how_ != How::kAsk && tells_its_class(type);
  if (how_ == How::kPlain && by_type) return false;
  if (how_ == How::kJaxArray && by_type) {
    const LeafSort sort = TypeTable::instance().find(object).sort;
    if (sort != LeafSort::kTracer) return sort == LeafSort::kJaxArray;
  }
  limit(reach, Reach::kObject);
  const int answer = PyObject_IsInstance(object, asked_.get());
  if (answer < 0) throw WalkError::from_user_code("asking isinstance about");
  return answer == 1;
}

}  // namespace partax
