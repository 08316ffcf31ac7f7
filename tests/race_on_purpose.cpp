// A data race, for race_on_purpose.py.
namespace {
long count = 0;
}

extern "C" void add(long times) {
  for (long i = 0; i < times; ++i) ++count;
}
