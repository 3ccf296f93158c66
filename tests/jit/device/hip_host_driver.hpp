// What a test may ask of the CUDA driver made for tests (hip_host_driver.cpp) besides CUDA's
// functions.
#pragma once

#include <cstdint>

extern "C" {

/// The `nth` call of that function from now on fails (1 is the next); 0 takes it back.
void kiln_host_driver_fail(const char* function, int nth);
/// The `nth` call of that function from now on fails with that error of CUDA's.
void kiln_host_driver_fail_with(const char* function, int nth, int error);
/// Edges by which a kernel may begin before another has ended, of all graphs so far.
int kiln_host_driver_programmatic_edges();
/// Calls that waited for all of a device.
std::uint64_t kiln_host_driver_device_waits();
/// Modules, streams, events, graphs and executables that were made and not destroyed.
int kiln_host_driver_live_handles();
}
