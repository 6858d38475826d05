/// Which documents a batch is made of, for people who look for the cause of a bad step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ilme/core/error.hpp>
#include <ilme/data/batch.hpp>

namespace ilme::data {

/// What a DocumentId's source is: the folder or file, and what its numbers count ("document": of token shards, from 0;
/// "line": of a file, from 1).
struct DocumentSource {
  std::string name;
  std::string unit = "document";
};

/// The documents, each once and by source, as "shards: documents 17, 203-205; chat.jsonl: line 8"; beyond `most` ranges
/// only how many more there are. Sources that are not listed go by number; padding is left out.
inline std::string describe_documents(std::vector<DocumentId> documents, const std::vector<DocumentSource>& sources,
                                      std::size_t most = 50) {
  std::sort(documents.begin(), documents.end());
  documents.erase(std::unique(documents.begin(), documents.end()), documents.end());
  documents.erase(documents.begin(), std::find_if(documents.begin(), documents.end(),
                                                  [](const DocumentId& id) { return id.source >= 0; }));
  std::string text;
  std::size_t ranges = 0;
  for (auto next = documents.begin(); next != documents.end();) {
    const bool starts_source = next == documents.begin() || next[-1].source != next->source;
    if (ranges++ == most) return concat(text, " and ", documents.end() - next, " more");
    const auto first = next++;
    while (next != documents.end() && next->source == first->source && next->document == next[-1].document + 1) ++next;
    if (starts_source) {
      const auto source = static_cast<std::size_t>(first->source);
      const bool known = source < sources.size();
      const bool several = first + 1 != documents.end() && first[1].source == first->source;
      text += concat(first == documents.begin() ? "" : "; ", known ? sources[source].name : concat("source ", source),
                     ": ", known ? sources[source].unit : "document", several ? "s " : " ");
    } else {
      text += ", ";
    }
    text += concat(first->document);
    if (next - first > 1) text += concat("-", next[-1].document);
  }
  return text;
}

}  // namespace ilme::data
