"""Raw results: JSON lines, one file for all sections, of which each holds its last run."""
import json
import os


class Store:
    def __init__(self, path, since=None):
        self.path, self.sections = path, {}
        source = since or path
        if source.exists():
            for line in source.read_text().splitlines():
                one = json.loads(line)
                self.sections.setdefault(one.pop("section"), []).append(one)
        elif since:
            raise FileNotFoundError(since)

    def get(self, name):
        return self.sections.get(name, [])

    def put(self, name, records):
        """Replaces a section and writes the file anew, whole or not at all."""
        self.sections[name] = records
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".part")
        with open(fresh, "w") as f:
            for section, found in self.sections.items():
                for one in found:
                    f.write(json.dumps({"section": section, **one}) + "\n")
        os.replace(fresh, self.path)
