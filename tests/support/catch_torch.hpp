/// Torch first, then Catch2 with its own CHECK: torch defines a macro of that name.
#pragma once

#include <torch/torch.h>

#undef CHECK
#include <catch2/catch_all.hpp>
