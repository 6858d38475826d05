/// The frame of an HTML page that needs nothing else: no scripts, no fonts, no network; light and dark.
#pragma once

#include <string>
#include <string_view>

#include <ilme/text/html.hpp>

namespace ilme::text {

namespace detail {

inline constexpr std::string_view kPageStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2129;--soft:#5d6573;--line:#e1e4ea;--card:#f7f8fa;
--k0:#dbe9fb;--k1:#fbe3cd;--k2:#d8f0dd;--k3:#f0dcf3;--k4:#f6efc4}
@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e4e7ec;--soft:#9aa3b2;--line:#2d333d;--card:#1b1f26;
--k0:#22405f;--k1:#5f3d1c;--k2:#1f4d2d;--k3:#4f2f57;--k4:#524917}}
.s0{--c:#3f78c9}.s1{--c:#d9792b}.s2{--c:#2f9a62}.s3{--c:#a758b5}.s4{--c:#c0962c}.s5{--c:#d1504f}.s6{--c:#2fa3b3}
.s7{--c:#7f8795}
*{box-sizing:border-box}
body{margin:0 auto;padding:32px 24px 64px;max-width:1160px;background:var(--bg);color:var(--fg);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:26px;margin:0 0 12px}h2{font-size:19px;margin:40px 0 6px}h3{font-size:15px;margin:18px 0 6px}
p{margin:6px 0}.soft,figcaption{color:var(--soft)}
.summary{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 18px}
.grid2{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr));gap:16px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
figcaption{font-size:13px;margin-bottom:6px}
svg{display:block;width:100%;height:auto;font-size:13px}svg text{fill:var(--fg)}
svg .axis{fill:var(--soft);font-size:12px}svg .value{font-variant-numeric:tabular-nums}
svg .grid{stroke:var(--line)}svg .mark{fill:var(--c)}svg polyline{fill:none;stroke:var(--c);stroke-width:2.2}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:6px 0 12px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;background:var(--c);margin-right:6px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:5px 8px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
thead th{font-weight:500;color:var(--soft);font-size:13px;vertical-align:bottom;white-space:normal}
th:first-child{text-align:left;font-weight:500}td.best{font-weight:700}
table.splits td{text-align:right;vertical-align:top}table.splits td:last-child{text-align:left;white-space:normal;width:100%}
table.splits th{vertical-align:top}
.tokens{line-height:1.9}
.token{padding:2px 1px;border-radius:3px;margin-right:1px;white-space:pre-wrap;unicode-bidi:isolate}
.token i{font-style:normal;opacity:.45}.token b{font:600 10px/1 ui-monospace,monospace;opacity:.75;padding:0 1px}
.k0{background:var(--k0)}.k1{background:var(--k1)}.k2{background:var(--k2)}.k3{background:var(--k3)}.k4{background:var(--k4)}
details{margin-top:40px;border-top:1px solid var(--line);padding-top:14px}summary{cursor:pointer;font-weight:600}
dt{font-weight:600;margin-top:10px}dd{margin:0}
)css";

}  // namespace detail

/// A chart or picture with its caption above.
inline std::string figure(const std::string& caption, const std::string& content) {
  return element("figure", "", element("figcaption", "", escape_html(caption)) + content) + "\n";
}

/// A part of the page with a heading and, below it, a note.
inline std::string section(const std::string& title, const std::string& note, const std::string& content) {
  const std::string below = note.empty() ? "" : element("p", "class=\"soft\"", escape_html(note));
  return "\n" + element("section", "", element("h2", "", escape_html(title)) + below + "\n" + content) + "\n";
}

/// A whole page: `title` is its heading too, `body` is HTML.
inline std::string html_page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n" +
         element("title", "", escape_html(title)) + "\n" + element("style", "", detail::kPageStyle) +
         "\n</head>\n<body>\n" + element("h1", "", escape_html(title)) + "\n" + body + "</body>\n</html>\n";
}

}  // namespace ilme::text
