/// The version of the library. CMake reads it from here.
#pragma once

#define ILME_VERSION_MAJOR 0
#define ILME_VERSION_MINOR 1
#define ILME_VERSION_PATCH 0
#define ILME_VERSION "0.1.0"
