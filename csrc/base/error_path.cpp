#include "base/error_path.h"

#include <algorithm>

#include "base/python_hooks.h"

namespace partax {

void set_python_error() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
    // CPython 3.13 copies the fields of an instance that it destroys; without memory for it, it drops what is set.
    if (PyErr_Occurred() == nullptr) PyErr_NoMemory();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const WalkError& error) {
    try {
      error.raise("a value");
    } catch (...) {
      set_python_error();
    }
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

WalkError WalkError::diagnosed(PyObject* type, std::string message) {
  WalkError error = from_user_code(std::move(message));
  if (!error.must_pass()) {
    error.type_ = Ref::borrow(type);
  } else {
    error.message_ = "reading";
  }
  return error;
}

WalkError WalkError::from_user_code(std::string doing) {
  WalkError error;
  error.message_ = std::move(doing);
  error.exception_ = take_exception();
  return error;
}

void WalkError::raise(const std::string& root) const {
  std::string path = root;
  const std::size_t count = std::min(segments_.size(), std::size_t{24});
  for (std::size_t i = 0; i < count; ++i) path += segments_[segments_.size() - 1 - i];
  if (count < segments_.size()) path += "... (" + std::to_string(segments_.size()) + " levels)";

  if (!type_) {
    Ref note = exact_unicode("partax: raised while " + message_ + " `" + path + "`");
    static Name add_note("add_note");
    const Ref added = Ref::steal(PyObject_CallMethodOneArg(exception_.get(), add_note.get(), note.get()));
    if (!added) PyErr_Clear();
    restore_exception(exception_);
    return;
  }
  PyErr_SetObject(type_.get(), exact_unicode("`" + path + "`: " + message_).get());
  if (!exception_ && mark_ == nullptr) return;
  Ref raised = take_exception();
  if (mark_ != nullptr && PyObject_SetAttrString(raised.get(), mark_, Py_True) < 0) PyErr_Clear();
  if (exception_) {
    Ref cause = exception_;
    PyException_SetCause(raised.get(), cause.release());
  }
  restore_exception(std::move(raised));
}

bool is_truthy(PyObject* callable, PyObject* argument, const char* doing) {
  const Ref answer = Ref::steal(PyObject_CallOneArg(callable, argument));
  const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
  if (truth < 0) throw WalkError::from_user_code(doing);
  return truth == 1;
}

std::string key_segment(PyObject* key) {
  const Ref text = Ref::steal(PyObject_Repr(key));
  forgive();
  return "[" + (text ? exact_text(text.get()) : "<" + type_name(key) + ">") + "]";
}

std::string child_segment(PyObject* node, std::size_t child) {
  const Ref keys = python::child_keys(node);
  const auto index = static_cast<Py_ssize_t>(child);
  const bool has_key = index < PyTuple_GET_SIZE(keys.get());
  const Ref text = has_key ? Ref::steal(PyObject_Str(PyTuple_GET_ITEM(keys.get(), index))) : Ref();
  forgive();  // of a key of the user
  return text ? exact_text(text.get()) : "[<flat index " + std::to_string(child) + ">]";
}

}  // namespace partax
