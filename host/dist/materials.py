#!/usr/bin/env python3
"""Says what the program of a target is made of: the crates that are compiled into it, those of the built-in plugins, and
the libraries of the compilers.

    host/dist/materials.py sbom --target TARGET       a bill of materials (CycloneDX 1.6, JSON)
    host/dist/materials.py notices --target TARGET    the licence texts that must come with the program

`sbom` needs cyclonedx-python-lib, which `host/dist/make` installs. Both print to standard output.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "portcullis-cli"
LICENCE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|notice|copyright|unlicense)")


def main():
    arguments = argparse.ArgumentParser(description="Says what the program of a target is made of.")
    arguments.add_argument("what", choices=["sbom", "notices"])
    arguments.add_argument("--target", required=True)
    given = arguments.parse_args()
    materials = Materials(given.target)
    print(sbom(materials) if given.what == "sbom" else notices(materials))


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


class Materials:
    """The crates that are compiled into the program of a target, by name and version."""

    def __init__(self, target):
        self.target = target
        used = crates_of([PROGRAM], target)
        for plugins, triple in builtin_plugins():
            used |= crates_of(plugins, triple)
        metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1"))
        packages = [package for package in metadata["packages"] if (package["name"], package["version"]) in used]
        self.packages = sorted(packages, key=lambda package: (package["name"], package["version"]))
        self.version = next(package["version"] for package in packages if package["name"] == PROGRAM)
        identifiers = {package["id"] for package in packages}
        self.dependencies = {
            node["id"]: sorted(
                dependency["pkg"] for dependency in node["deps"]
                if dependency["pkg"] in identifiers and any(kind["kind"] is None for kind in dependency["dep_kinds"])
            )
            for node in metadata["resolve"]["nodes"] if node["id"] in identifiers
        }
        lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
        self.checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}


def crates_of(packages, target):
    """Returns the crates that these packages of the workspace are compiled from for a target."""
    chosen = [word for package in packages for word in ("--package", package)]
    lines = output("cargo", "tree", "--locked", "--edges", "normal", "--target", target, "--prefix", "none",
                   "--format", "{p}", "--no-dedupe", *chosen)
    return {tuple(line.split()[:2])[:1] + (line.split()[1].removeprefix("v"),) for line in lines.splitlines() if line}


def builtin_plugins():
    """Returns the packages of the built-in plugins and the target of each, as the build script lists them."""
    script = (ROOT / "host/wasm/build.rs").read_text()
    for names, triple in (("PLUGINS", "TARGET"), ("WASI_PLUGINS", "WASI_TARGET")):
        listed = re.search(rf"const {names}: \[&str; \d+\] = \[(.*?)\];", script, re.DOTALL).group(1)
        target = re.search(rf'const {triple}: &str = "(.*?)";', script).group(1)
        yield [f"portcullis-{name}" for name in re.findall(r'"(.*?)"', listed)], target


def compiler_libraries():
    """Returns the name, version and licence of what the compilers link into every program."""
    rust = re.search(r"release: (\S+)", output("rustc", "--version", "--verbose")).group(1)
    requirements = (ROOT / "host/dist/requirements.txt").read_text()
    zig = re.search(r"^ziglang==(\S+)", requirements, re.MULTILINE).group(1)
    return [("rust-std", rust, "MIT OR Apache-2.0", "The standard library of Rust"),
            ("musl", f"zig-{zig}", "MIT", "The C library, as it comes with Zig")]


def sbom(materials):
    from datetime import datetime, timezone
    from uuid import NAMESPACE_URL, uuid5

    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.validation.json import JsonStrictValidator
    from cyclonedx.schema import SchemaVersion
    from packageurl import PackageURL

    licences = LicenseFactory()
    components = {}
    for package in materials.packages:
        name, version = package["name"], package["version"]
        checksum = materials.checksums.get((name, version))
        components[package["id"]] = Component(
            name=name, version=version, description=package["description"],
            type=ComponentType.APPLICATION if name == PROGRAM else ComponentType.LIBRARY,
            bom_ref=f"{name}@{version}",
            purl=PackageURL("cargo", None, name, version) if checksum else None,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
            licenses=[licences.make_from_string(package["license"].replace("/", " OR "))] if package["license"] else [],
        )
    program = next(component for component in components.values() if component.name == PROGRAM)
    libraries = [
        Component(name=name, version=version, description=description, type=ComponentType.LIBRARY,
                  bom_ref=f"{name}@{version}", licenses=[licences.make_from_string(licence)])
        for name, version, licence, description in compiler_libraries()
    ]
    bom = Bom(components=[*(c for c in components.values() if c is not program), *libraries],
              serial_number=uuid5(NAMESPACE_URL, f"portcullis/{materials.version}/{materials.target}"))
    bom.metadata.component = program
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    for identifier, component in components.items():
        bom.register_dependency(component, [components[it] for it in materials.dependencies.get(identifier, [])])
    # The plugins are built into the program, though cargo does not see them as its dependencies.
    plugins = {name for names, _ in builtin_plugins() for name in names}
    built_in = [component for component in components.values() if component.name in plugins]
    bom.register_dependency(program, [*built_in, *libraries])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        sys.exit(f"the bill of materials does not follow its schema: {problem}")
    return text


def notices(materials):
    """Returns the licence texts of all crates. Those that share a text are listed above it."""
    texts, without = {}, []
    for package in materials.packages:
        name = f"{package['name']} {package['version']}"
        folder = pathlib.Path(package["manifest_path"]).parent
        if ROOT in folder.parents:
            continue
        found = [file for file in sorted(folder.iterdir()) if LICENCE_FILE.match(file.name) and file.is_file()]
        for file in found:
            texts.setdefault(file.read_text(errors="replace").strip(), []).append(name)
        if not found:
            without.append(f"{name}: {package['license']}, {', '.join(package['authors']) or package['repository']}")
    parts = ["Portcullis contains these works of others, under the licences below.\n"]
    if without:
        parts.append("Their packages name a licence and hold no text of it:\n" + "\n".join(f"  {it}" for it in without) + "\n")
    libraries = [f"  {name} {version}: {licence}. {about}" for name, version, licence, about in compiler_libraries()]
    parts.append("The compilers add:\n" + "\n".join(libraries) + "\n")
    for text, names in sorted(texts.items(), key=lambda entry: entry[1]):
        parts.append("=" * 100 + "\n" + ", ".join(names) + "\n\n" + text + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
