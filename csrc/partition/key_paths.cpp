#include "partition/key_paths.h"

namespace partax {
namespace {

Ref made(const char* cls, PyObject* part) {
  const Ref jax = Ref::checked(PyImport_ImportModule("jax.tree_util"));
  return Ref::checked(PyObject_CallOneArg(attribute(jax.get(), cls).get(), part));
}

Ref index_of(const Step& step) { return Ref::checked(PyLong_FromSize_t(step.index)); }

}  // namespace

Ref KeyPaths::key(const Step& step) {
  switch (step.kind) {
    case Kind::kDict:
    case Kind::kOrderedDict:
    case Kind::kDefaultDict:
      return made("DictKey", step.key);
    case Kind::kModule:
    case Kind::kDataclass:
    case Kind::kNamedTuple:
      if (step.index < step.info->child_names.size()) {
        return made("GetAttrKey", step.info->child_names[step.index].get());
      }
      return made("SequenceKey", index_of(step).get());
    case Kind::kTuple:
    case Kind::kList:
      return made("SequenceKey", index_of(step).get());
    default: {
      PyObject* entry = path_.key_entry();
      return entry != nullptr ? Ref::borrow(entry) : made("FlattenedIndexKey", index_of(step).get());
    }
  }
}

bool KeyPaths::enter(const Step* step, PyObject*) {
  if (step == nullptr) return false;
  path_.push(*step);
  keys_.push_back(key(*step));
  return false;
}

bool KeyPaths::leaf(PyObject*) {
  paths_.push_back(tuple_of(keys_));
  leave();
  return true;
}

void KeyPaths::leave() {
  if (keys_.empty()) return;  // the root
  keys_.pop_back();
  path_.pop();
}

}  // namespace partax
