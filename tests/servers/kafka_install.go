package servers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

var pomVersion = regexp.MustCompile(`<version>([^<]+)</version> <!-- of Kafka -->`)

// kafkaJars returns the directory with the jars of the broker.
func kafkaJars() (string, error) {
	dir, err := kafkaCacheDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the jars are not installed: %w", err)
	}
	return dir, nil
}

func kafkaCacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	version := pomVersion.FindSubmatch(kafkaPOM)
	if version == nil {
		return "", errors.New("kafka/pom.xml does not name a version")
	}
	return filepath.Join(cache, "watermill-inbox-tests", "kafka-"+string(version[1])), nil
}

// installKafka copies the jars of the broker into the user's cache directory.
// They get their final name only when all are there, so an interrupted
// download leaves nothing half done and two downloads at once do no harm.
func installKafka(ctx context.Context, out io.Writer) error {
	if _, err := exec.LookPath("java"); err != nil {
		return fmt.Errorf("the broker needs Java 17 or newer (apt-get install openjdk-17-jre-headless): %w", err)
	}
	if _, err := kafkaJars(); err == nil {
		return nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("downloading Kafka needs Maven (apt-get install maven): %w", err)
	}
	dir, err := kafkaCacheDir()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "downloading %s with Maven (43 MB), up to a minute\n", filepath.Base(dir))

	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	pom := filepath.Join(temp, "pom.xml")
	if err := os.WriteFile(pom, kafkaPOM, 0o644); err != nil {
		return err
	}
	jars := filepath.Join(temp, "jars")
	err = runQuietly(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+jars)
	if err != nil {
		return err
	}
	if err := os.Rename(jars, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
