/// Runs a program and catches what it prints.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <string>

#include <ilme/core/error.hpp>
#include <ilme/core/file.hpp>

#include "support/temporary.hpp"

namespace ilme::test {

struct ProcessResult {
  int exit_code;  // 128 + signal when one ended it
  std::string out, err;
};

/// Runs `command` in the shell, with `environment` ("A=1 B=2") before it.
inline ProcessResult run_process(const std::string& command, const std::string& environment = "") {
  const TemporaryFolder folder;
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const std::string line = concat("{ ", environment, " ", command, " ; } > ", out, " 2> ", err);
  const int status = std::system(line.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(out), read_file(err)};
}

}  // namespace ilme::test
