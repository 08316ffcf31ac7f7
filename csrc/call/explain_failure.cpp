#include "call/explain_failure.h"

#include "base/python_hooks.h"
namespace partax {

void explain_failure(const CallFrame& frame) {
  const bool is_explained = PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                            PyErr_ExceptionMatches(PyExc_RuntimeError) != 0;
  if (!is_explained) return;
  Ref original = take_exception();
  restore_exception(python::explained_failure(original, frame.cache.options,
                                              tuple_of(frame.call.values(), frame.call.size()),
                                              frame.traced ? Py_True : Py_False, frame.in_body ? Py_True : Py_False));
}

}  // namespace partax
