"""
The registry: every filter and score of the scheduler, in kube-scheduler's order.

The first filter that rejects a node gives the reason for it. To add a plugin, write its class and
list it here; a requirement of its own is parsed in `scheduler.model`. Planning, the counts of a
`FailedScheduling` event, requeueing and `/explain` follow from the list.

Two scores compare sets of nodes instead of single ones, and the placement attempt calls them where
it chooses such a set: `NumaTopology.packing` (GPU islands) and `PlacementPolicy.nearness`
(topology domains).
"""

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from scheduler.columns.node_table import NodeTable
from scheduler.model.pod import Pod
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.image_locality import ImageLocality
from scheduler.plugins.interpod.plugin import InterPod
from scheduler.plugins.node_affinity import DeclaredFeatures, NodeAffinity, NodeNames
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.node_resources import NodeResources
from scheduler.plugins.numa.plugin import NumaTopology
from scheduler.plugins.placement_policy import PlacementPolicy
from scheduler.plugins.protocol import ANY_EVENT, Plugin
from scheduler.plugins.taint_toleration import TaintToleration
from scheduler.plugins.volumes.plugin import VolumePlugin

P = TypeVar("P", bound=Plugin)
Arguments = ParamSpec("Arguments")
R = TypeVar("R")
Registry = tuple[Callable[[NodeTable], Plugin], ...]

DEFAULT: Final[Registry] = (
    # class            filter                                     score, with its weight
    NodeNames,  #        nodes that affinity names one by one       -
    TaintToleration,  #  unschedulable, untolerated taints          fewer soft taints, 3
    NodeAffinity,  #     node selector, required affinity           preferred affinity, 2
    NodePorts,  #        host ports                                 -
    NodeResources,  #    free amounts                               least and balanced use, 1 each
    VolumePlugin,  #     disks, claims, limits, zones               -
    InterPod,  #         topology spread, pod (anti-)affinity       both, 2 each
    DynamicResources,  # claims of devices                          tightest fit of devices
    DeclaredFeatures,  # features that kubelets declare             -
    PlacementPolicy,  #  tenant tiers, fabric, VRAM                 hardware tier, fabric
    ImageLocality,  #    -                                          images that are present, 1
    NumaTopology,  #     NUMA nodes and GPUs inside the host        best NUMA node, 10
)


class PluginSet:
    """
    The plugins of one snapshot, and for each capability those that have it.

    Capabilities are tuples of bound methods, in the order of the registry: hot paths call them
    without looking at plugins that do nothing.
    """

    def __init__(self, table: NodeTable, registry: Registry = DEFAULT) -> None:
        self.registry = registry
        self._all = tuple(make(table) for make in registry)
        # watches
        self.feeds = tuple(feed for feeds in self._methods(Plugin.feeds) for feed in feeds())
        # state
        self.put_node = self._methods(Plugin.put_node)
        self.charge = self._methods(Plugin.charge)
        self.uncharge = self._methods(Plugin.uncharge)
        self.drop = self._methods(Plugin.drop)
        self.state = self._methods(Plugin.state)
        self.adopt = self._methods(Plugin.adopt)
        # filters
        self.static_filters = self._having(Plugin.static_filter)
        self.static_keys = self._methods(Plugin.static_key)
        self.fits = self._methods(Plugin.fits)
        self.capacity = self._methods(Plugin.capacity)
        by_amounts = self._having(Plugin.fits)
        self.stateful_filters = tuple(
            plugin.filter for plugin in self._having(Plugin.filter) if plugin not in by_amounts
        )
        self.host_filters = self._having(Plugin.host_filter)
        self.unresolvable = self._methods(Plugin.unresolvable)
        # requeueing and equal pods
        self._dependent = self._having(Plugin.depends_on_pods)
        self.depends_on_pods = self._methods(Plugin.depends_on_pods)
        self.affects_equal_pods = tuple(plugin.affects_equal_pods for plugin in self._dependent)
        self.sharing = self._having(Plugin.shares_node)
        self.signature = self._methods(Plugin.signature)
        # scores
        self.static_scores = self._having(Plugin.static_score)
        self.static_score_keys = self._methods(Plugin.static_score_key)
        self.score = self._methods(Plugin.score)
        self.spread_score = self._methods(Plugin.spread_score)
        self.packing_cost = self._methods(Plugin.packing_cost)
        # explaining
        self.relaxations = self._methods(Plugin.relaxations)

    def __iter__(self) -> Iterator[Plugin]:
        return iter(self._all)

    def get(self, kind: type[P]) -> P:
        """The plugin of this class, for callers that need more of it than the protocol."""
        return next(plugin for plugin in self._all if isinstance(plugin, kind))

    def requeueing_events(self, pod: Pod) -> frozenset[str]:
        """Kinds of objects, other than nodes, whose changes may help the pod; empty: none."""
        dependent = [plugin for plugin in self._dependent if plugin.depends_on_pods(pod)]
        if not dependent:
            return frozenset()
        return frozenset({ANY_EVENT}).union(*(plugin.events for plugin in dependent))

    def _having(self, method: Callable[..., Any]) -> tuple[Plugin, ...]:
        """The plugins that override the method."""
        name = method.__name__
        return tuple(plugin for plugin in self._all if getattr(type(plugin), name) is not method)

    def _methods(
        self, method: Callable[Concatenate[Any, Arguments], R]
    ) -> tuple[Callable[Arguments, R], ...]:
        return tuple(getattr(plugin, method.__name__) for plugin in self._having(method))
