package middlewares_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox/tests/require"
)

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("outside see every delivery: what failed, what succeeded, and duplicates", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		registry := prometheus.NewRegistry()

		metrics.NewPrometheusMetricsBuilder(registry, "", "").AddPrometheusRouterMetrics(s.Router)
		s.start(t, s.failing(1), ib.Middleware)

		for range 3 { // a failure, a success and two duplicates
			s.publish(t, newOrder("e1"))
		}

		require.Equal(t, "handled", count(t, registry, "handler_execution_time_seconds", "success", "true"), 3)
		require.Equal(t, "failed", count(t, registry, "handler_execution_time_seconds", "success", "false"), 1)
		require.Eventually(t, "acks are counted", func() bool {
			return count(t, registry, "subscriber_messages_received_total", "acked", "acked") == 3
		})
		require.Eventually(t, "nacks are counted", func() bool {
			return count(t, registry, "subscriber_messages_received_total", "acked", "nacked") == 1
		})
		s.db.RequireOnce(t, "e1")
	})

	t.Run("inside see runs of the handler only", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		registry := prometheus.NewRegistry()
		inner := metrics.NewPrometheusMetricsBuilder(registry, "", "").NewRouterMiddleware()

		s.start(t, s.failing(1), ib.Middleware, inner.Middleware)

		for range 3 {
			s.publish(t, newOrder("e1"))
		}

		require.Equal(t, "handled", count(t, registry, "handler_execution_time_seconds", "success", "true"), 1)
		require.Equal(t, "failed", count(t, registry, "handler_execution_time_seconds", "success", "false"), 1)
	})
}

// count returns the value of a counter, or the number of observations of a histogram, of this label.
func count(t testing.TB, registry *prometheus.Registry, name, label, value string) (n int) {
	t.Helper()

	families, err := registry.Gather()
	require.OK(t, err)

	for _, family := range families {
		if family.GetName() != name {
			continue
		}

		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label && pair.GetValue() == value {
					n += int(metric.GetCounter().GetValue()) + int(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}

	return n
}
