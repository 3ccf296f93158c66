kiln_test(kiln_backend_tests ROOMS jit vocabulary
  SOURCES backend_registry_test.cpp backend_launch_geometry_test.cpp dependencies_test.cpp graph_arguments_test.cpp
    cpu_threads_test.cpp
    cpu_shared_object_test.cpp backend_fixtures.cpp)

# The same promises on every device: the CPU always, AMD and NVIDIA where there is one.
kiln_test(kiln_device_tests ROOMS jit vocabulary LABELS gpu
  SOURCES backend_device_test.cpp graph_device_test.cpp hip_device_test.cpp backend_fixtures.cpp)
