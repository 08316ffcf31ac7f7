#include <algorithm>

#include "base/python_hooks.h"
#include "call/call.h"
#include "call/user_result.h"
#include "classes/type_table.h"

namespace partax {
namespace {

// Whether a leaf is an array of jax that has been deleted or given away.
bool is_deleted(PyObject* leaf) {
  const bool is_array =
      hooks().jax_array_type.is(Py_TYPE(leaf)) || TypeTable::instance().find(leaf).sort == LeafSort::kJaxArray;
  if (!is_array) return false;
  static Name name("is_deleted");
  return checked_int(PyObject_IsTrue(Ref::checked(PyObject_CallMethodNoArgs(leaf, name.get())).get())) == 1;
}

Ref bytes_of(const std::vector<std::uint8_t>& flags) {
  return Ref::checked(
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(flags.data()), static_cast<Py_ssize_t>(flags.size())));
}

}  // namespace

bool are_any_deleted(const LeafBuffer& leaves) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (is_deleted(leaves[i])) return true;
  }
  return false;
}

bool may_lose_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  if (entry.donated.empty() || entry.forwarded.empty()) return false;
  std::vector<PyObject*> donated;
  donated.reserve(leaves.size());
  for (std::size_t i = 0; i < entry.donated.size() && i < leaves.size(); ++i) {
    if (entry.donated[i] != 0) donated.push_back(leaves[i]);
  }
  std::sort(donated.begin(), donated.end());
  for (std::size_t next = 0; next < entry.forwarded.size(); ++next) {  // asking runs Python: another thread may trace
    const std::size_t i = entry.forwarded[next];
    if (i >= leaves.size()) continue;
    if (std::binary_search(donated.begin(), donated.end(), leaves[i]) || is_deleted(leaves[i])) return true;
  }
  return false;
}

void refuse_lost_forwarded(const Entry& entry, const LeafBuffer& leaves) {
  const Ref target = entry.value;
  python::refuse_lost_arrays(target, leaves.tuple(), bytes_of(entry.donated));
}

void check_forwarded(const Entry& entry, PyObject* returned, const LeafBuffer& leaves, bool were_there) {
  if (!is_output_node(returned)) return;
  const std::shared_ptr<const TraceOutput> output = output_of(returned);
  for (const std::int32_t source : output->source) {
    if (source >= 0) continue;
    const std::size_t i = ~static_cast<std::size_t>(source);
    if (!is_deleted(leaves[i])) continue;
    const Ref target = entry.value;
    const Ref index = number(i);
    python::raise_lost_array(target, leaves.tuple(), bytes_of(entry.donated), index, truth(were_there));
    return;
  }
}

}  // namespace partax
