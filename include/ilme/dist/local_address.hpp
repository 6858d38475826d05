/// Which of this host's addresses other hosts reach it at.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include <ilme/core/error.hpp>

namespace ilme::dist {

namespace detail {

inline std::string numeric_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (::getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

inline bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    in_addr ip;
    std::memcpy(&ip, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, sizeof(ip));
    return (ntohl(ip.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// The first IPv4 address of an interface that is up and no loopback, or "".
inline std::string outward_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || is_loopback(entry->ifa_addr)) continue;
    return numeric_address(entry->ifa_addr, sizeof(sockaddr_in));
  }
  return "";
}

}  // namespace detail

/// This host's address on the way to `host`, in numbers. If `host` is this host, that may be a loopback address, which
/// does not serve ranks on `other_hosts`: then the first address of another interface. Throws RunError when the name is
/// unknown or there is no way.
inline std::string local_address(const std::string& host, bool other_hosts) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "9", &hints, &list); error != 0) {
    throw RunError("the address \"", host, "\" of the host of rank 0 is not known here: ", ::gai_strerror(error),
                   "; set MASTER_ADDR to one that all hosts can reach");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, ::freeaddrinfo);
  std::string reason = "no route";
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    auto* address = reinterpret_cast<sockaddr*>(&local);
    // A datagram socket sends nothing when it is connected, and gets the address that the route has.
    const bool found =
        ::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 && ::getsockname(fd, address, &length) == 0;
    if (!found) reason = std::strerror(errno);
    ::close(fd);
    if (!found) continue;
    if (other_hosts && detail::is_loopback(address)) {
      if (const std::string outward = detail::outward_address(); !outward.empty()) return outward;
    }
    return detail::numeric_address(address, length);
  }
  throw RunError("no way leads from here to ", host, ", the host of rank 0: ", reason);
}

}  // namespace ilme::dist
