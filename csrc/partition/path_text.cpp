#include "partition/path_text.h"

#include "base/error_path.h"
#include "base/python_hooks.h"

namespace partax {

void PathText::push(const Step& step) {
  if (levels_.size() == depth_) levels_.emplace_back();
  Level& level = levels_[depth_++];
  if (level.step.parent != step.parent) level.entries.reset();
  level.step = step;
  level.segment.reset();
}

void PathText::pop() {
  --depth_;
  // The parent may die and another be made at its address.
  if (depth_ + 1 < levels_.size()) {
    levels_[depth_ + 1].step.parent = nullptr;
    levels_[depth_ + 1].entries.reset();
  }
  if (ends_.size() > depth_) ends_.resize(depth_);
}

// The key of a child of a registered node, as jax has it; borrowed, or null where jax names none.
PyObject* PathText::key_entry(std::size_t index) {
  Level& level = levels_[index];
  if (!level.entries) level.entries = python::child_keys(level.step.parent);
  const auto at = static_cast<Py_ssize_t>(level.step.index);
  return at < PyTuple_GET_SIZE(level.entries.get()) ? PyTuple_GET_ITEM(level.entries.get(), at) : nullptr;
}

const std::string& PathText::segment(std::size_t index) {
  Level& level = levels_[index];
  if (level.segment) return *level.segment;
  const Step& step = level.step;
  PyObject* const entry = step.by() == Step::By::kFunctions ? key_entry(index) : nullptr;
  if (step.by() == Step::By::kKey) {
    level.segment = exact_text(Ref::checked(PyObject_Str(step.key)).get());
  } else if (step.by() == Step::By::kName) {
    level.segment = exact_text(step.name());
  } else {
    level.segment = entry == nullptr ? std::to_string(step.index) : exact_text(python::simple_key(entry).get());
  }
  return *level.segment;
}

void PathText::append_keystr(std::size_t index, std::string& text) {
  const Step& step = levels_[index].step;
  if (step.by() == Step::By::kName) {
    text += '.';
    text += segment(index);
  } else if (step.by() == Step::By::kFunctions) {
    PyObject* const entry = key_entry(index);
    text += entry == nullptr ? "[<flat index " + std::to_string(step.index) + ">]"
                             : exact_text(Ref::checked(PyObject_Str(entry)).get());
  } else {
    text += '[';
    text += step.by() == Step::By::kKey ? exact_text(Ref::checked(PyObject_Repr(step.key)).get()) : segment(index);
    text += ']';
  }
}

const std::string& PathText::key(const std::string* separator) {
  key_.resize(ends_.empty() ? 0 : ends_.back());
  for (std::size_t level = ends_.size(); level < depth_; ++level) {
    if (separator == nullptr) {
      append_keystr(level, key_);
    } else {
      if (level > 0) key_ += *separator;
      key_ += segment(level);
    }
    ends_.push_back(key_.size());
  }
  return key_;
}

std::string PathText::slashed() {
  std::string text;
  for (std::size_t level = 0; level < depth_; ++level) text += (level > 0 ? "/" : "") + segment(level);
  return text;
}

}  // namespace partax
