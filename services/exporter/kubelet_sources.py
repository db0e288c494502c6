"""The places that hold a kubelet's settings: its command line, its files, and what starts it.

Reads files; `kubelet_config.merged` decides.

1. The command line in /proc is exact: it has the flags, and names the file of `--config` and the
   folder of `--config-dir`. Only if it and the files that it names were read is it certain that a
   setting has its default.
2. Without it, the files that make up the command line are read (kubeadm-flags.env, systemd units,
   /etc/default, /etc/sysconfig, config.yaml of k3s and RKE2, snap arguments), and the configuration
   files and drop-in folders of known distributions. They show settings, and never prove that
   nothing else is set.

Paths of the node are looked up below `root` (a mount of the node's file system or of parts of it),
those below /var/lib/kubelet in `kubelet_dir`, too. Source: kubelet 1.36, cmd/kubelet/app/server.go;
k8s/README.md has a table of distributions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.exporter.folders import CONFIG_FILE, read_bounded
from services.exporter.kubelet_config import (
    FLAG_FIELDS,
    GATES_FLAG,
    MAX_FILE_BYTES,
    KubeletConfigError,
    KubeletSettings,
    combined,
    document,
    mapping,
    merged,
)
from shared.file_signature import Signature, signature

COMMAND_LINE = "the kubelet's command line"
KUBEADM_FLAGS = "kubeadm-flags.env"
STATE_DIR = "/var/lib/kubelet"
# Configuration files by distribution, in the order in which they are tried.
CONFIG_FILES = (
    f"{STATE_DIR}/{CONFIG_FILE}",  # kubeadm
    "/etc/kubernetes/kubelet/config.json",  # EKS (nodeadm)
    "/etc/kubernetes/kubelet/kubelet-config.json",  # EKS (Amazon Linux 2)
    "/etc/kubernetes/kubelet/config",  # Bottlerocket
    "/etc/kubernetes/kubelet.conf",  # OpenShift; with kubeadm a kubeconfig has this name
    "/etc/kubernetes/kubelet.yaml",  # Talos
    "/home/kubernetes/kubelet-config.yaml",  # GKE
    "/etc/default/kubeletconfig.json",  # AKS
)
K3S_DROP_INS = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
DROP_IN_DIRS = (
    "/etc/kubernetes/kubelet/config.json.d",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
    K3S_DROP_INS,
)
UNIT_FILES = (
    "/usr/lib/systemd/system/kubelet.service",
    "/lib/systemd/system/kubelet.service",
    "/etc/systemd/system/kubelet.service",
)
MICROK8S_ARGUMENTS = "/var/snap/microk8s/current/args/kubelet"
# Later files win: kubeadm's unit puts KUBELET_EXTRA_ARGS (default, sysconfig) last.
ARGUMENT_FILES = (
    f"{STATE_DIR}/{KUBEADM_FLAGS}",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
    MICROK8S_ARGUMENTS,
    "/var/snap/k8s/common/args/kubelet",
)
K3S_CONFIG = "/etc/rancher/k3s/config.yaml"
RANCHER_FILES = ("/etc/rancher/rke2/config.yaml", K3S_CONFIG)
KUBELET_ARG = "kubelet-arg"
DROP_IN = ".conf"
MAX_COMMAND_BYTES = 128 << 10
_NAMES = (*FLAG_FIELDS, "config", "config-dir", "root-dir")
# The kubelet reads underscores in flags as dashes.
_PATTERNS = "|".join(name.replace("-", "[-_]") for name in _NAMES)
_FLAG = re.compile(rf"--({_PATTERNS})(?:=|[ \t]+)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'\\]+)")

Flags = dict[str, str]
Document = dict[str, Any]


class Places(msgspec.Struct, frozen=True):
    """Where to look. `proc` is the node's /proc, or empty if it must not be read.

    `config` and `config_dir` take the place of what the command line names.
    """

    kubelet_dir: str = ""
    root: str = ""
    proc: str = ""
    config: str = ""
    config_dir: str = ""


class KubeletSources:
    """Reads the settings of one kubelet, and reads them again if a file changed."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: dict[str, Signature] = {}
        self._settings: KubeletSettings | None = None

    def forget(self) -> None:
        """Read everything again at the next call."""
        self._settings = None

    def read(self) -> KubeletSettings:
        """Return the merged settings. Raises KubeletConfigError."""
        changed = any(signature(path) != seen for path, seen in self._seen.items())
        if self._settings is None or changed:
            self._seen = {}
            self._settings = merged(*self._gather())
        return self._settings

    def content(self) -> Document:
        """Return the merged KubeletConfiguration. Raises KubeletConfigError."""
        documents, flags, _ = self._gather()
        return combined(documents, flags)

    def _gather(
        self,
    ) -> tuple[list[tuple[str, Document]], list[tuple[str, Flags]], tuple[str, ...]]:
        unread: list[str] = []
        arguments = command_line(self._places.proc) if self._places.proc else None
        if arguments is None:
            flags = [*self._units(), *self._argument_files(), *self._rancher()]
            unread.append(COMMAND_LINE)
        else:
            flags = self._started_with(arguments, unread)
        effective = {name: value for _, values in flags for name, value in values.items()}
        documents = self._config(effective, unread, arguments is None)
        documents += self._drop_ins(effective, unread, arguments is None)
        return documents, flags, tuple(unread)

    def _started_with(self, arguments: list[str], unread: list[str]) -> list[tuple[str, Flags]]:
        program = os.path.basename(arguments[0])
        if program == "kubelite":
            text = self._text(self._paths(MICROK8S_ARGUMENTS))
            if text is None:
                unread.append(MICROK8S_ARGUMENTS)
            return [(MICROK8S_ARGUMENTS, flags_in(_text(text or b"")))]
        if not program.startswith("k3s"):
            return [(COMMAND_LINE, parse_flags(arguments[1:]))]
        # k3s runs its kubelet in its own process; its arguments go over those of its config.yaml.
        folder = os.path.dirname(K3S_CONFIG)
        if not any(os.path.isdir(path) for path in self._paths(folder)):
            unread.append(K3S_CONFIG)
        embedded = parse_flags([f"--{value}" for value in kubelet_arguments(arguments[1:])])
        return [
            ("k3s", {"config-dir": K3S_DROP_INS}),
            *self._rancher((K3S_CONFIG,)),
            ("the command line of k3s", embedded),
        ]

    def _config(
        self, flags: Mapping[str, str], unread: list[str], guess: bool
    ) -> list[tuple[str, Document]]:
        given, named = self._places.config, flags.get("config", "")
        if given:
            text = self._text([given])
            if text is None:
                raise KubeletConfigError(f"{given}: cannot be read; check --kubelet-config")
            return [(given, document(text, given))]
        if named:
            text = self._text(self._paths(named, flags))
            if text is not None:
                return [(named, document(text, named))]
            unread.append(f"{named} (--config)")
        if guess:
            for path in CONFIG_FILES:
                text = self._text(self._paths(path))
                if text and not is_other_file(text):
                    return [(path, document(text, path))]
        return []

    def _drop_ins(
        self, flags: Mapping[str, str], unread: list[str], guess: bool
    ) -> list[tuple[str, Document]]:
        given, named = self._places.config_dir, flags.get("config-dir", "")
        if given or named:
            paths = [given] if given else self._paths(named, flags)
            folder = next((path for path in paths if os.path.isdir(path)), "")
            if not folder:
                unread.append(f"{given or named} (--config-dir)")
            return self._folder(folder)
        documents: list[tuple[str, Document]] = []
        if guess:
            for candidate in DROP_IN_DIRS:
                for path in self._paths(candidate):
                    documents += self._folder(path)
        return documents

    def _folder(self, folder: str) -> list[tuple[str, Document]]:
        if not folder:
            return []
        self._seen[folder] = signature(folder)
        documents = []
        for name in _names(folder):
            path = f"{folder}/{name}"
            text = self._text([path]) if name.endswith(DROP_IN) else None
            if text:
                documents.append((path, document(text, path)))
        return documents

    def _units(self) -> list[tuple[str, Flags]]:
        texts = []
        for unit in UNIT_FILES:
            for path in self._paths(unit):
                folder = f"{path}.d"
                self._seen[folder] = signature(folder)
                files = [f"{folder}/{name}" for name in _names(folder) if name.endswith(DROP_IN)]
                texts += [self._text([file]) or b"" for file in (path, *files)]
        flags = unit_flags(_text(text) for text in texts)
        return [("the systemd unit of the kubelet", flags)] if flags else []

    def _argument_files(self) -> list[tuple[str, Flags]]:
        sources = []
        for path in ARGUMENT_FILES:
            flags = flags_in(_text(self._text(self._paths(path)) or b""))
            if flags:
                sources.append((path, flags))
        return sources

    def _rancher(self, files: Iterable[str] = RANCHER_FILES) -> list[tuple[str, Flags]]:
        sources = []
        for path in (path for file in files for path in self._paths(file)):
            folder = f"{path}.d"
            self._seen[folder] = signature(folder)
            more = [f"{folder}/{name}" for name in _names(folder) if name.endswith(".yaml")]
            flags = rancher_flags((file, self._text([file]) or b"") for file in (path, *more))
            if flags:
                sources.append((path, flags))
        return sources

    def _paths(self, path: str, flags: Mapping[str, str] | None = None) -> list[str]:
        """Return the places of a path of the node: below the kubelet's folder, below the root."""
        paths = [f"{self._places.root}{path}"]
        state_dir = (flags or {}).get("root-dir", STATE_DIR)
        if self._places.kubelet_dir and path.startswith(f"{state_dir}/"):
            paths.insert(0, self._places.kubelet_dir + path.removeprefix(state_dir))
        return paths

    def _text(self, paths: Iterable[str]) -> bytes | None:
        """Return the first readable file's content, and remember the files for the next look."""
        for path in paths:
            self._seen[path] = signature(path)
            text = read_bounded(path, MAX_FILE_BYTES + 1)
            if text is not None:
                return text
        return None


def command_line(proc: str) -> list[str] | None:
    """Return the arguments of the running kubelet, or None if no process or several are visible."""
    candidates: dict[int, list[list[str]]] = {}
    for name in _names(proc):
        data = read_bounded(f"{proc}/{name}/cmdline", MAX_COMMAND_BYTES) if name.isdigit() else None
        arguments = _text(data or b"").rstrip("\0").split("\0")
        rank = _rank(arguments)
        if rank is not None:
            candidates.setdefault(rank, []).append(arguments)
    if not candidates:
        return None
    kubelets = candidates[min(candidates)]
    return kubelets[0] if all(kubelet == kubelets[0] for kubelet in kubelets) else None


def _rank(arguments: list[str]) -> int | None:
    """Return how directly a process is the kubelet: itself, MicroK8s' kubelite, or k3s."""
    program = os.path.basename(arguments[0])
    if program == "hyperkube" and arguments[1:2] == ["kubelet"]:
        return 0
    if program in ("kubelet", "kubelite"):
        return ("kubelet", "kubelite").index(program)
    is_k3s = program in ("k3s-server", "k3s-agent") or (
        program == "k3s" and arguments[1:2] in (["server"], ["agent"])
    )
    return 2 if is_k3s else None


def parse_flags(arguments: Iterable[str]) -> Flags:
    """Return the placement flags of an argument list, the last value of each; the kubelet adds up
    feature gates."""
    flags: Flags = {}
    for name, value in _pairs(arguments):
        if name == GATES_FLAG and name in flags:
            value = f"{flags[name]},{value}"
        if name in _NAMES:
            flags[name] = value
    return flags


def kubelet_arguments(arguments: Iterable[str]) -> list[str]:
    """Return the values of k3s' and RKE2's `--kubelet-arg`."""
    return [value for name, value in _pairs(arguments) if name == KUBELET_ARG]


def _pairs(arguments: Iterable[str]) -> list[tuple[str, str]]:
    """Return (flag, value) of `--flag=value` and `--flag value`."""
    pairs = []
    words = list(arguments)
    for index, word in enumerate(words):
        if word == "--":
            break
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            continue
        if not equals and index + 1 < len(words):
            value = words[index + 1]
        pairs.append((name.replace("_", "-"), value))
    return pairs


def flags_in(text: str) -> Flags:
    """Return the placement flags in an environment file, a unit or an argument file."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]
    flags = {}
    for match in _FLAG.finditer("\n".join(lines)):
        value = match[2].strip("\"'")
        if value and "$" not in value:
            flags[match[1].replace("_", "-")] = value
    return flags


def unit_flags(texts: Iterable[str]) -> Flags:
    """Return the flags of a unit and its drop-ins; an empty `ExecStart=` resets those before."""
    flags: Flags = {}
    for text in texts:
        if re.search(r"^ExecStart=\s*$", text, re.MULTILINE):
            flags = {}
        flags.update(flags_in(text))
    return flags


def rancher_flags(files: Iterable[tuple[str, bytes]]) -> Flags:
    """Return the flags in `kubelet-arg` of k3s' or RKE2's config.yaml and config.yaml.d.

    `files` are (path, content). A later file replaces the list, or adds to it with the key
    `kubelet-arg+`. Raises KubeletConfigError.
    """
    arguments: list[str] = []
    for path, text in files:
        if KUBELET_ARG.encode() not in text:
            continue
        try:
            content = mapping(text)
        except ValueError as error:
            raise KubeletConfigError(
                f"{path}: {error}; expected YAML with {KUBELET_ARG}"
            ) from error
        if KUBELET_ARG in content:
            arguments = _listed(content[KUBELET_ARG])
        arguments += _listed(content.get(f"{KUBELET_ARG}+"))
    return parse_flags(f"--{argument.removeprefix('--')}" for argument in arguments)


def _listed(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [str(item) for item in values if item is not None]


def is_other_file(text: bytes) -> bool:
    """Return True for another kind of file: a kubeconfig, a config.yaml of k3s, a unit."""
    match = re.search(rb"^\s*\"?kind\"?\s*:\s*\"?(\w+)", text, re.MULTILINE)
    if match is not None:
        return match[1] != b"KubeletConfiguration"
    return KUBELET_ARG.encode() in text or b"[Service]" in text


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
