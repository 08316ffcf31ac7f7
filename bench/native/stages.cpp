#include "stages.h"

#include "dispatch/program_table.h"
#include "pytree/flatten.h"
#include "pytree/match.h"
#include "pytree/rebuild.h"
#include "static_key/static_value.h"
#include "timing.h"

namespace partax::bench {
namespace {

TreeSpec spec_of(PyObject* object) {
  LeafBuffer leaves;
  return bench::spec_of(object, leaves);
}

// As a call with a changed argument does: with the hash, without what only rebuilding needs.
void flatten(benchmark::State& state, const Tree& tree) {
  time_per_node(state, tree.nodes, [&] {
    TreeSpec spec;
    LeafBuffer leaves;
    Flattener(spec, leaves, FlattenOptions()).tree(tree.object.get());
    benchmark::DoNotOptimize(spec.hash);
  });
}

bool is_match(const TreeSpec& key, PyObject* object) {
  LeafBuffer leaves;
  return match_call(key, &object, 1, leaves, false, nullptr);
}

// The key of a call with one argument.
TreeSpec key_of(PyObject* object) {
  TreeSpec spec;
  LeafBuffer leaves;
  Flattener(spec, leaves, FlattenOptions()).call(&object, 1);
  return spec.sealed(nullptr);
}

void match(benchmark::State& state, const Tree& tree, PyObject* object) {
  const TreeSpec key = key_of(tree.object.get());
  time_per_node(state, tree.nodes, [&] { expect(is_match(key, object), "the object matches the key"); });
}

void match_same(benchmark::State& state, const Tree& tree) { match(state, tree, tree.object.get()); }

// No static value is the identical object, unless Python shares it.
void match_copy(benchmark::State& state, const Tree& tree) { match(state, tree, tree.copy.get()); }

// The hash of every static value; the rest of the spec's hash is part of `flatten`.
void hash(benchmark::State& state, const Tree& tree) {
  const TreeSpec spec = spec_of(tree.object.get());
  std::vector<Ref> values;
  for (const StaticValue& value : spec.statics) {
    if (!value.absent()) values.push_back(value.value());
  }
  time_per_node(state, tree.nodes, [&] {
    for (const Ref& value : values) benchmark::DoNotOptimize(static_hash(value.get(), Unhashable::kCompare));
  });
}

// A key against the spec of a tree built anew.
void equality(benchmark::State& state, const Tree& tree) {
  const TreeSpec sealed = spec_of(tree.object.get()).sealed(nullptr);
  const TreeSpec fresh = spec_of(tree.copy.get());
  time_per_node(state, tree.nodes, [&] { expect(sealed.equals(fresh), "both specs are equal"); });
}

void rebuild(benchmark::State& state, const Tree& tree) {
  LeafBuffer leaves;
  const TreeSpec spec = bench::spec_of(tree.object.get(), leaves);
  expect(is_match(key_of(tree.object.get()), partax::rebuild(spec, leaves.arguments(), leaves.size()).get()),
         "the rebuilt tree is the same");
  time_per_node(state, tree.nodes, [&] {
    const Ref object = partax::rebuild(spec, leaves.arguments(), leaves.size());
    benchmark::DoNotOptimize(object.get());
  });
}

// Looks up the specs of (tree, 1000), (tree, 1001), ... in turn, in a table of that many programs: a call whose hash
// has been computed.
template <std::size_t programs>
void find(benchmark::State& state, const Tree& tree) {
  ProgramTable table(programs);
  std::vector<TreeSpec> specs;
  for (std::size_t i = 0; i < programs; ++i) {
    const Ref number = Ref::checked(PyLong_FromSize_t(1000 + i));
    const Ref key = Ref::checked(PyTuple_Pack(2, tree.object.get(), number.get()));
    specs.push_back(spec_of(key.get()));
    table.find_or_insert(specs.back(), CallShape());
  }
  std::size_t next = 0;
  time_per_node(state, tree.nodes + 2, [&] {  // the tree in a tuple, beside a number
    const ProgramPtr program = table.find_or_insert(specs[next], CallShape());
    expect(program != nullptr, "the table has every key");
    next = next + 1 == programs ? 0 : next + 1;
  });
}

using Stage = void (*)(benchmark::State&, const Tree&);

void add(const char* stage_name, Stage stage, const std::vector<Tree>& trees, bool (*applies)(const Tree&)) {
  for (const Tree& tree : trees) {
    if (!applies(tree)) continue;
    const std::string name = std::string(stage_name) + "/" + tree.name;
    benchmark::RegisterBenchmark(
        name.c_str(), [stage, &tree](benchmark::State& state) { reported(state, [&] { stage(state, tree); }); });
  }
}

bool always(const Tree&) { return true; }

bool has_statics(const Tree& tree) { return tree.statics != 0; }

// Trees as large as users' arguments; of larger ones a thousand programs would take long to make.
bool is_for_table(const Tree& tree) { return tree.name == "arrays_10" || tree.name == "mlp_8"; }

}  // namespace

void register_stages(const std::vector<Tree>& trees) {
  add("flatten", flatten, trees, always);
  add("match", match_same, trees, always);
  add("match_copy", match_copy, trees, has_statics);
  add("hash", hash, trees, has_statics);
  add("equality", equality, trees, always);
  add("rebuild", rebuild, trees, always);
  add("find_1", find<1>, trees, is_for_table);
  add("find_100", find<100>, trees, is_for_table);
  add("find_1000", find<1000>, trees, is_for_table);
}

}  // namespace partax::bench
