package servers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Kafka is an Apache Kafka broker that is its own KRaft controller. It creates
// topics on first use, with three partitions.
type Kafka struct {
	instance
	controllerPort int
}

// NewKafka returns a Kafka broker which keeps its data below dir.
func NewKafka(dir string) *Kafka {
	return &Kafka{instance: newInstance("kafka", dir), controllerPort: reservePort()}
}

// Addr returns host:port.
func (k *Kafka) Addr() string { return k.hostPort() }

// Start starts the server and returns once it answers, see [Server].
func (k *Kafka) Start(ctx context.Context) error { return k.start(ctx, k.launch) }

func (k *Kafka) launch(ctx context.Context) error {
	jars, err := kafkaJars()
	if err != nil {
		return err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return err
	}
	properties := k.path("server.properties")
	if err := os.WriteFile(properties, k.properties(), 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(k.path("data", "meta.properties")); errors.Is(err, os.ErrNotExist) {
		err := k.runTool(ctx, command{path: java, args: append(javaFlags(jars),
			"kafka.tools.StorageTool", "format", "-t", "aW5ib3gtdGVzdC1rYWZrYQ", "-c", properties)})
		if err != nil {
			return err
		}
	}
	return k.run(ctx, command{
		path:  java,
		args:  append(javaFlags(jars), "kafka.Kafka", properties),
		ready: k.ping,
	})
}

// javaFlags favour a quick start over peak speed.
func javaFlags(jars string) []string {
	return []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.level=INFO",
		"-cp", filepath.Join(jars, "*"),
	}
}

func (k *Kafka) properties() []byte {
	return fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[3]s

auto.create.topics.enable=true
num.partitions=3
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=3

broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
`, k.port, k.controllerPort, k.path("data"))
}

// ping asks for the metadata of the cluster (Metadata request, version 1,
// without topics). A broker that accepts connections but is not yet part of
// the cluster answers with an empty list of brokers.
func (k *Kafka) ping(ctx context.Context) error {
	const correlationID = 7
	request := []byte{
		0, 0, 0, 14, // size of what follows
		0, 3, 0, 1, // API key, API version
		0, 0, 0, correlationID,
		0xff, 0xff, // no client id
		0, 0, 0, 0, // no topics
	}
	var reply [12]byte // size, correlation id, number of brokers
	if err := exchange(ctx, k.port, request, reply[:]); err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(reply[4:]); id != correlationID {
		return fmt.Errorf("unexpected correlation id %d", id)
	}
	if binary.BigEndian.Uint32(reply[8:]) == 0 {
		return errors.New("the broker has not joined the cluster")
	}
	return nil
}
