// The graph that this thread is tracing a callable into: where a Value without operands, such as an
// iota, finds its place.
#pragma once

namespace kiln {

namespace fusion {
class Graph;
}

/// While this lives, values without operands are made in `graph`. Nests.
class Tracing {
 public:
  explicit Tracing(fusion::Graph& graph);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

 private:
  fusion::Graph* outer_;
};

}  // namespace kiln
