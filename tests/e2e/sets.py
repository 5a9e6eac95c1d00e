"""The public sets of shared/data as jobs, each with the feature set of its reference.json that it trains to.

An entry: name, file below shared/data, feature set, split, what the job's blocks say, and what differs from the usual
(z-scored, lambda 0.1, split last20). `example` names a job file that ships; the others are written here."""
import json
import os

from cluster import ROOT, SHARED

EXAMPLES = os.path.join(ROOT, "deploy", "examples")


class Set:
    def __init__(self, name, file, features="all", data=None, example=None, l2=0.1, decay=0.9, steps=400, split="last20",
                 preprocessing="zscore", test=0.2, scale=1.0, also=None):
        self.name, self.file, self.features, self.data, self.example = name, file, features, data, example
        self.l2, self.decay, self.steps, self.split, self.preprocessing = l2, decay, steps, split, preprocessing
        self.test, self.scale = test, scale  # scale: our target is the reference's times this, but for a constant
        self.also = also  # the file that the split "official" tests on
        self.path = os.path.join(SHARED, "data", file)

    def there(self):
        return os.path.exists(self.path)

    def job_text(self):
        if self.example:
            with open(os.path.join(EXAMPLES, self.example)) as f:
                return f.read()
        return "\n".join([f"name: {self.name}", "data:", "  path: x", *[f"  {line}" for line in self.data],
                          f"  test: {self.test}", f"  standardize: {'yes' if self.preprocessing == 'zscore' else 'no'}",
                          f"model: {{l2: {self.l2}}}",
                          f"optimizer: {{rate: 0.1, decay: {self.decay}, batch: all, steps: {self.steps}}}"]) + "\n"

    def flags(self):
        """The job's data block as flags of `predict`."""
        flags = []
        block = self.job_text().split("data:\n")[1].split("\nmodel:")[0]
        for line in block.splitlines():
            key, _, value = line.strip().partition(": ")
            if key in ("path", "standardize") or (key == "test" and float(value) == 0):
                continue
            if value.startswith("["):
                value = ",".join(part.strip().strip('"').replace(",", "\\,") for part in split_list(value[1:-1]))
            flags += [f"--{key.replace('_', '-')}", value.strip('"')]
        return flags

    def reference(self):
        """Objective and test metrics of the exact optimum."""
        with open(os.path.join(os.path.dirname(self.path), "reference.json")) as f:
            split = json.load(f)["feature_sets"][self.features]["splits"][self.split]
        found = [r for r in split["ridge"] if r["preprocessing"] == self.preprocessing and r["intercept_used"] and
                 r["lambda"] == self.l2]
        assert len(found) == 1, f"{self.name}: {len(found)} references"
        return found[0], split["n_train"]


def split_list(text):
    """A YAML flow list's items; commas inside quotes are no separators."""
    items, quoted = [""], False
    for c in text:
        if c == '"':
            quoted = not quoted
        if c == "," and not quoted:
            items.append("")
        else:
            items[-1] += c
    return items


COMMUNITIES_OUT = [*range(1, 6), *range(102, 119), *range(122, 126), 127]
AIR = ["format: csv", "header: yes", 'separator: ";"', 'decimal: ","', 'target: "C6H6(GT)"',
       'drop: [Date, Time, "CO(GT)", "NMHC(GT)", "NOx(GT)", "NO2(GT)", ""]', "missing: drop-row"]

# The five of the examples first.
SETS = [
    Set("ccpp", "tables/ccpp/ccpp.txt", example="ccpp.yaml"),
    Set("california", "tables/california/california.csv", "numeric_dropna", example="california.yaml"),
    Set("casp", "tables/casp/casp.txt", example="casp.yaml"),
    Set("hflights", "tables/hflights/hflights.csv", example="hflights/hflights.yaml"),
    Set("cpusmall", "sparse/cpusmall/cpusmall", example="cpusmall.yaml"),
    Set("airquality", "quirky/airquality/AirQualityUCI.csv", "drop_missing", AIR + ['missing_values: ["-200", "-200,0"]']),
    Set("airquality-literal", "quirky/airquality/AirQualityUCI.csv", "literal", AIR),
    Set("autompg", "quirky/autompg/auto-mpg.data", "drop_missing",
        ["format: space", "target: first", "drop: [9]", "missing: drop-row", 'missing_values: ["?"]']),
    Set("communities", "quirky/communities/communities.data", "drop_row",
        ["format: csv", f"drop: [{', '.join(map(str, COMMUNITIES_OUT))}]", "missing: drop-row", 'missing_values: ["?"]']),
    Set("communities-columns", "quirky/communities/communities.data", "drop_columns",
        ["format: csv", f"drop: [{', '.join(map(str, sorted(COMMUNITIES_OUT + [31])))}]", 'missing_values: ["?"]']),
    Set("seoulbike", "quirky/seoulbike/SeoulBikeData.csv", "numeric",
        ["format: csv", "header: yes", "target: rented_bike_count", "drop: [date, seasons, holiday, functioning_day]"]),
    # The reference's labels are -1 and 1, the file's 0 and 1: half of it, moved by a half.
    Set("titanic", "quirky/titanic/titanic_train.csv", "numeric",
        ["format: csv", "header: yes", "target: Survived", "drop: [PassengerId, Name, Sex, Age, Ticket, Cabin, Embarked]"],
        scale=0.5),
    Set("wine-red", "quirky/wine/winequality-red.csv", "red", ["format: csv", "header: yes", 'separator: ";"']),
    Set("wine-white", "quirky/wine/winequality-white.csv", "white",
        ["format: csv", "header: yes", 'separator: ";"', "target: quality"]),
    Set("airfoil", "tables/airfoil/airfoil_self_noise.dat", data=["format: csv", 'separator: "\\t"']),
    Set("bikehour", "tables/bikehour/hour.csv", "numeric",
        ["format: csv", "header: yes", "drop: [instant, dteday, casual, registered]"]),
    Set("concrete", "tables/concrete/concrete.txt", data=["format: space"]),
    Set("diabetes", "tables/diabetes/diabetes.csv", data=["format: csv", "header: yes"]),
    Set("energy", "tables/energy/energy.txt", data=["format: space"]),
    Set("hflights-no-depdelay", "tables/hflights/hflights.csv", "no_depdelay",
        ["format: csv", "header: yes", "target: ArrDelay", "drop: [DepDelay]"]),
    Set("naval", "tables/naval/naval.txt", data=["format: space", "target: 17", "drop: [18]"]),
    Set("a9a", "sparse/a9a/a9a", data=["format: svm", "features: 123"], l2=0.01, decay=0.95, steps=1000, split="official",
        preprocessing="raw", test=0, also="sparse/a9a/a9a.t"),
    Set("rcv1", "sparse/rcv1_small/rcv1_small.train", data=["format: svm", "features: 47236"], l2=0.01, decay=0.97, steps=1500,
        split="official", preprocessing="raw", test=0, also="sparse/rcv1_small/rcv1_small.test"),
    Set("w8a", "sparse/w8a/w8a", data=["format: svm"], l2=0.01, decay=0.95, steps=1000),
]
