#include "call/flatten_call.h"

#include "tree/spec_data.h"

namespace partax {

FlattenOptions flatten_options(const CallCache& cache, const BoundCall& call, bool abstract) {
  FlattenOptions options;
  options.abstract = abstract;
  options.callables = cache.callables;
  if (cache.rule.any()) {
    options.rule = &cache.rule;
    options.rule_values =
        cache.rule.values(call.size(), [&] { return shape_data(cache.parameters, call.shape(), call.has_callable()); });
  }
  return options;
}

Ref call_data(const CallCache& cache, const BoundCall& call, bool abstract, LeafBuffer& leaves) {
  TreeSpec spec;
  FlattenOptions options = flatten_options(cache, call, abstract);
  options.hashed = false;
  options.keyed = true;
  const Ref names = value_names(cache.parameters, call.shape(), call.has_callable());
  flatten_call(spec, leaves, options, call.values(), call.size(), [&] { return Ref::borrow(names.get()); });
  return spec_data(spec, names);
}

}  // namespace partax
