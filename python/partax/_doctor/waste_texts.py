"""What the findings of wasted work say."""

import re

# Each by its name: what is found -> what to do.
_TABLE = """
inverse: the inverse of {what} is only multiplied: it takes three times the work of a solve, and is less accurate ->
  solve instead: `jnp.linalg.solve(a, b)` for `inv(a) @ b`, or `jax.scipy.linalg.cho_solve` where `a` is positive
  definite
diagonal matrix: a diagonal matrix, {what}, is multiplied as if it were full -> multiply by the vector: `d[:, None] *
  m` for `diag(d) @ m`, `m * d` for `m @ diag(d)`
product of all pairs: {what}, as `jnp.kron` or `jnp.outer` makes it, is only multiplied -> multiply by its factors:
  `(a @ x.reshape(n, m) @ b.T).ravel()` for `kron(a, b) @ x`, `a * (b @ x)` for `outer(a, b) @ x`
diagonal: of {what} only the diagonal is used -> compute the diagonal alone: `jnp.sum(a * b.T, 1)` for that of `a @
  b`; of a Hessian or a Jacobian one product with a unit vector at a time, by `jax.jvp` in a `jax.lax.map`, or a
  random estimate
jacobian: a Jacobian or a Hessian, {what}, is only multiplied by a vector -> compute the product alone: `jax.jvp(f,
  (x,), (v,))[1]` for `jacobian(f)(x) @ v`, of `jax.grad(f)` for a Hessian; `jax.vjp` for `v @ jacobian(f)(x)`
mode: a Jacobian is computed by {times:,} products with unit vectors, where {others:,} the other way would do -> use
  `jax.jacfwd` where a function has more outputs than inputs, `jax.jacrev` or `jax.grad` where it has fewer
one-hot: a one-hot array, {what}, is multiplied to look up rows, or to add them up -> index the table: `table[ids]`,
  or `jnp.take(table, ids, axis=0)`; for sums `jax.ops.segment_sum`
sort: all {length:,} elements of {what} are sorted, of which {used:,} are used -> take the largest alone:
  `jax.lax.top_k(x, k)` gives them with their indices, of `-x` the smallest; `jax.lax.approx_max_k` on accelerators
shuffle: all {length:,} elements are shuffled, of which {used:,} are used -> draw these alone: `jax.lax.top_k(
  jax.random.uniform(key, (n,)), k)[1]`, or `jax.random.randint`, by which one may be drawn twice
ranks: the order of a sort, {what}, is sorted again, which inverts it -> write each rank where it belongs:
  `jnp.zeros_like(order).at[order].set(jnp.arange(n))` for `jnp.argsort(order)`
draws: {times:,} draws from the same logits make a random number for each class of each, {what} -> look one number up
  for each draw: `jax.random.choice(key, n, shape, p=jax.nn.softmax(logits))`
rows: few rows are used of this product, which takes {share:.0%} of the program's multiplications -> take the rows
  before: `x[:, -1] @ w` for `(x @ w)[:, -1]`
shift: each of {times:,} turns of this loop copies all of {what} to shift it, and reads little of it -> leave it where
  it is, and write in a circle: `x.at[i % n].set(new)` in turn `i`
stack: the scan stacks {what} of its {length:,} steps, of which one step is used -> take it from the carry that the
  scan returns, and have the body return `None` for it
map: a map of {times:,} turns computes next to nothing in each, one after the other -> use `jax.vmap`, which computes
  all turns at once, or `jax.lax.map(..., batch_size=...)`, many
order: products of three matrices in an order that takes {multiplications:,} multiplications, where {other_order:,}
  would do -> set parentheses: `a @ (b @ c)` for `(a @ b) @ c`; `jnp.linalg.multi_dot` finds the best order
convolution: a convolution with a kernel of {length:,} places in each channel takes {multiplications:,}
  multiplications -> convolve by Fourier transforms: `jax.scipy.signal.fftconvolve`, or `jnp.fft.rfft` of both
sum: a product of matrices is written as a sum over {what}, a product of broadcast arrays -> use `@` or `jnp.einsum`,
  which libraries for matrices compute
factors: of the factor {what} of this decomposition no more than {used:,} rows or columns can be of use -> set
  `full_matrices=False`
copies: a `cond` under `jax.vmap` copies all of {what} in each of {times:,} turns, where a branch writes a part of it
  -> have the branches return what is to be written, and write it after the `cond`: `x.at[i].set(jnp.where(p, new,
  x[i]))`
parts: each of {times:,} turns of this loop reads a part of {what}, whose gradient adds an array as large in each turn
  of its own -> take the parts out before the loop, by one index with all places, and have the scan go along them as
  its `xs`
"""
TEXTS: dict[str, list[str]] = {
    name: " ".join(text.split()).split(" -> ")
    for name, text in (row.split(": ", 1) for row in re.split(r"\n(?! )", _TABLE.strip()))
}
