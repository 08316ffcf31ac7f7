"""Guards the promise that nothing crashes, whatever comes: programs for a fuzzer, one for each way in."""
