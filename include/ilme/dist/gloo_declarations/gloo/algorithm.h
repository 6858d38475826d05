/// Stand-in for the header of this name of Gloo (https://github.com/pytorch/gloo), see ilme/dist/gloo.hpp.
/// torch's header includes it and uses nothing of it.
#pragma once
