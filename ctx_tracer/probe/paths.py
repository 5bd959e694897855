"""Call sites and signatures this process has met, each defined once in the record."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from ctx_tracer.probe.digest import hash_of
from ctx_tracer.probe.naming import Namer, caller
from ctx_tracer.probe.observe.python import facts
from ctx_tracer.probe.regions import MAX_SIGNATURES, UNKNOWN, Path, Region, Signature, template
from ctx_tracer.record.writer import RecordWriter

# A model has tens of recomputed blocks; a program that builds new ones in every step must not make us grow.
MAX_PATHS = 4096


class Paths:
    """Finds the path of a recompute call, and the signature of what it captured."""

    def __init__(self, namer: Namer) -> None:
        self._namer = namer
        self._paths: Dict[Any, Path] = {}

    def path(self, mode: str, function: Any, args: Tuple[Any, ...], named: Optional[str]) -> Path:
        """The path of a call of `function`; `named` is what `ctx_tracer.region` calls it."""
        site = self._namer.call_site(function, args)
        span = None if site.span is None else (site.span.start, site.span.stop)
        # Two files may hold equal code objects: a lambda of the same text in the same line.
        file = site.code.co_filename if site.code is not None else None
        key = (mode, site.code, file, span, named, tuple(map(id, site.layers)))
        path = self._paths.get(key)
        if path is not None and path.still_runs(site):
            return path
        source = self._namer.source(caller(1))
        name = self._namer.name(site, source)
        if named is not None:
            name = f"{named}.{name}" if site.layers else named
        if len(self._paths) >= MAX_PATHS:
            alive = {k: p for k, p in self._paths.items() if p.alive()}
            self._paths = alive if len(alive) < MAX_PATHS else {}
        path = self._paths[key] = Path(name, source, mode, site, self._namer.owned(site))
        return path

    def signature(self, record: RecordWriter, region: Region) -> Signature:
        """The signature of what `region` captured; `UNKNOWN` where its path has too many."""
        path = region.path
        latest, signature = path.latest
        if latest == region.captured:  # nearly always; observations are interned, so this is quick
            return signature
        exact = tuple(region.captured)
        known = path.signatures.get(exact)
        if known is not None:
            path.latest = region.captured, known
            return known
        structure = template(region.captured)
        known = path.templates.get(structure)
        if known is None:
            if len(path.templates) >= MAX_SIGNATURES:
                record.add("signatures_overflow")
                return UNKNOWN
            defined = record.define("signature", self._describe(region))
            # By structured names: Paddle's own count what else was made in this process.
            shared = [(*slot[:-1], self._namer.parameter(slot[-1])) for slot in structure]
            known = path.templates[structure] = Signature(defined, hash_of([path.name, path.mode, shared]))
        if len(path.signatures) < MAX_SIGNATURES:  # extents that vary are told by their template, at its price
            path.signatures[exact] = known
        return known

    def _describe(self, region: Region) -> Dict[str, Any]:
        slots = []
        for slot, observation in zip(region.path.slots, region.captured):
            described = facts(observation, name=self._namer.parameter(observation.parameter))
            slots.append({**described, "role": slot.role, "layer": slot.producer})
        return {"path": region.path.definition, "slots": slots}
