// Where the tests make a worker fail. In the worker that is installed these calls are empty; the
// tests' worker (tests/jit/service/faults.cpp) defines them.
#pragma once

#include <string>

#include "jit/compilers/protocol.hpp"

namespace kiln::jit {

enum class Step { started, before_read, after_read, before_answer, in_answer, after_answer };

#ifdef KILN_WORKER_FAULTS
/// Fails in the way that KILN_WORKER_FAULT says for that step, or does nothing.
void fault(Step step);
/// May change or damage the frame that is about to be sent.
void fault_frame(std::string& frame);
#else
inline void fault(Step) {}
inline void fault_frame(std::string&) {}
#endif

}  // namespace kiln::jit
